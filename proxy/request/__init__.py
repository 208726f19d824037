"""A Responses request becomes a Chat Completions request, and what could not be carried is put on record. No I/O."""

from proxy.request.kept_items import check_kept_items
from proxy.request.losses import Loss, header_value
from proxy.request.plan import ChatPlan, translate
from proxy.request.policy import Policy
from proxy.request.support import support

__all__ = ["ChatPlan", "Loss", "Policy", "check_kept_items", "header_value", "support", "translate"]
