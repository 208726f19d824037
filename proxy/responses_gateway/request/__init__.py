"""Translate a Responses request into a Chat Completions request, and report what could not be carried over. No I/O."""

from responses_gateway.request.loss_report import Loss, header_value
from responses_gateway.request.policy import Policy
from responses_gateway.request.support import support
from responses_gateway.request.translation import ChatRequest, check_kept_items, translate

__all__ = ["ChatRequest", "Loss", "Policy", "check_kept_items", "header_value", "support", "translate"]
