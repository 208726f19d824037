"""A Responses request becomes a Chat Completions request, and what could not be carried is put on record. No I/O."""

from proxy.request.input.kept_items import check_kept_items
from proxy.request.loss_report import Loss, header_value
from proxy.request.parameters.support import support
from proxy.request.policy import Policy
from proxy.request.translate import ChatPlan, translate

__all__ = ["ChatPlan", "Loss", "Policy", "check_kept_items", "header_value", "support", "translate"]
