"""Which errors say that the prompt is too long, and which only sound so: the words of many servers, with numbers of our own."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.wire.context_overflow import names_overflow, says_overflow
from responses_gateway.wire.errors import read_error

# vLLM, SGLang, llama.cpp, TGI, Ollama, LM Studio, TensorRT-LLM, OpenVINO, TabbyAPI, LMDeploy, MLC LLM; OpenAI, Anthropic,
# Gemini, Bedrock, Groq, Cerebras, Mistral, Cohere, xAI, Kimi, MiniMax, z.ai, DashScope, SiliconFlow, Volcengine, watsonx,
# Copilot; those through LiteLLM; and what the next server may say.
TOO_LONG = [
    "This model's maximum context length is 8192 tokens. However, you requested 9000 output tokens and your prompt contains "
    "8500 input tokens, for a total of 17500 tokens.",
    "This model's maximum context length is 8192 tokens. You sent 9000.",
    "prompt length 9000 > max model len 8192",
    "The sequence length of 9000 tokens is above this model's limit of 8192",
    "max_tokens must be at least 1, got -300.",
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "Requested token count exceeds the model's maximum context length of 8192 tokens.",
    (
        "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use a shorter input or "
        "enable --allow-auto-truncate."
    ),
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "the request exceeds the available context size. try increasing it",
    "the request exceeds the available context size (4096 tokens), try increasing it",
    "request (9000 tokens) exceeds the available context size (8192 tokens), try",
    "context size has been exceeded",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 and 20",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 5000",
    "the input length exceeds the context length",
    (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with "
        "context length of only 4096 tokens, which is not enough."
    ),
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Prompt length (9000) exceeds maximum input length (8192).",
    "Input is too long for requested model.",
    "An error occurred (ValidationException) when calling the Converse operation: Input is too long for requested model.",
    "prompt is too long: 9000 tokens > 8192 maximum",
    "context window exceeded",
    "maximum context length",
    "The sum of prompt length (12007.0), query length (0) should not exceed max_num_tokens (8192)",
    (
        'litellm.BadRequestError: OpenAIException - {"error":{"message":"You passed 70001 input tokens and '
        "requested 4096 output tokens. However, the model's context length is only 65536 tokens, resulting "
        "in a maximum input length of 61440 tokens. Please reduce the length of the input "
        'prompt.","type":"BadRequestError","param":"input_tokens","code":400}}. Received Model Group=m'
    ),
    "Invalid request: Your request exceeded model token limit: 131072 (requested: 140311)",
    "invalid params, context window exceeds limit (2013)",
    "This model's maximum prompt length is 131072 but the request contains 140211 tokens.",
    "prompt token count of 131100 exceeds the limit of 128000",
    "Prompt exceeds max length",
    "Prompt exceeds maximum length",
    "length of prompt_tokens (80000) must be less than max_seq_len (65536).",
    (
        "Mediapipe execution failed. MP status - INVALID_ARGUMENT: Number of prompt tokens: 40000 exceeds "
        "model max length: 32768"
    ),
    "Prompt length 40000 is greater than max_seq_len 32768",
    (
        "You passed 70001 input tokens and requested 4096 output tokens. However, the model's context length "
        "is only 65536 tokens, resulting in a maximum input length of 61440 tokens. Please reduce the length "
        "of the input prompt."
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is "
        "32768 tokens and your request has 1200 input tokens (32000 > 32768 - 1200)."
    ),
    (
        "This model's maximum context length is 8192 tokens. However, you requested 8000 output tokens and "
        "your prompt contains 1201 input tokens, for a total of 9201 tokens."
    ),
    (
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the "
        "messages, 8000 in the completion)."
    ),
    (
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a "
        "total of 9192 tokens: 1192 tokens from the input messages and 8000 tokens for the completion."
    ),
    (
        "input length and `max_tokens` exceed context limit: 150000 + 64000 > 200000, decrease input length "
        "or `max_tokens` and try again"
    ),
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Your input exceeds the model's context window",
    "Please reduce the length of the messages or completion.",
    "Please reduce the length of the messages or completion. Current length is 8500 while limit is 8192",
    "Input length (265330) exceeds model's maximum context length (262144).",
    "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens "
        "(139000 of text input, 1000 in the output)."
    ),
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Prompt has 32769 tokens, but the configured context size is 32768 tokens",
    "Range of input length should be [1, 30720]",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 202745]",
    "prompt too long; exceeded max context length by 512 tokens",
    "too many tokens in the request",
    "tokens in request more than max tokens allowed",
    "Total tokens of image and text exceed max message tokens. Request id: 0217",
    "Too many input tokens. Max input tokens: 128000, request input token count: 140000",
    (
        "Invalid input argument for Model 'm': the number of input tokens 4098 cannot exceed the total "
        "tokens limit 4096 for this model"
    ),
    "Request prompt has 2015 tokens in total, larger than the model input length limit 1416.",
    "The prompt is too long: 40000, model maximum context length: 32768",
    (
        "too many tokens: total number of tokens in the prompt cannot exceed 128000 - received 140000. Try "
        "using a shorter prompt or enabling prompt truncating."
    ),
    "input length 140000 tokens exceeds the model limit",
    "Model context window is 128k tokens, you requested 256k tokens",
    "Context window exceeded: requested 12000 tokens",
    "Prompt too large for this model",
    "This model supports at most 64,000 context tokens. Requested tokens: 100000.",
    "prompt + completion exceeds model context window of 1,048,576 tokens",
    (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300120 tokens. "
        "Please reduce the length of the messages."
    ),
    "input token count is above the limit",
    "The input is too long to be processed (9000/8192 tokens).",
    "Requested tokens (9000) exceed context window of 8192",
    "The request contains 140211 tokens which is more than the 131072 supported.",
    "输入长度超过模型上限",
    "Prompt 超长",
    "上下文长度超出限制，请压缩上下文",
    "输入内容过长，请缩短后重试",
    "total sequence length (62534 + 3002) exceeds `session_len` (65536)",
    "exceed session max length. Please end the session.",
    "the input prompt token len 9000 + max_new_tokens 1000 > 8192",
    "Input prompt (9000 tokens) is too long and exceeds limit of 8192",
    "The prompt size exceeds the context window size and cannot be processed.",
    "Prompt length exceeds the available context size of the model",
    "This model's maximum input length is 8192 tokens, but 9000 were given",
    "n_ctx is 4096 but the prompt has more than that: 5000 tokens",
    "Your conversation is too long for this model. Start a new one.",
    "Context length exceeded",
    "model_context_window_exceeded",
    "The prompt contains 5000 tokens, exceeding the limit of 4096",
    "Conversation exceeds the model's token limit",
    "the prompt does not fit into the context of the model (9000 tokens)",
    "Please shorten your prompt: it has 140000 tokens",
    "input_length + max_tokens > max_model_len: 9000 + 100 > 8192",
    "The prompt of 9000 tokens cannot be processed: limit 8192",
    "Got 9000 prompt tokens; allowed: 8192",
    "prompt_tokens=9000 max=8192",
    "9000 tokens in the prompt, the model only supports 8192",
    "The model's context window was exceeded by this request",
    "Requested 9000 tokens but the model can only handle 8192 tokens of context",
    "Your prompt has 9000 tokens, which is over the 8192 token limit.",
    "The total length of your messages (9000 tokens) is over the limit of 8192 tokens",
    "Input is too large: 9000 tokens (maximum 8192)",
    "Query exceeds maximum context",
    "Prompt tokens (9000) exceeded the model limit (8192)",
    "The number of tokens in your prompt (9000) exceeds the limit (8192)",
    "messages exceed the model's max context",
    "Error: context length of 8192 exceeded",
    "This request has 9000 input tokens, exceeding the maximum of 8192",
    "Sequence length 9000 exceeds maximum sequence length 8192",
    "Token indices sequence length is longer than the specified maximum sequence length for this model (9000 > 8192)",
    "Requested tokens exceed model's context window (9000 > 8192)",
    "maximum allowed input length is 8192, got 9000 tokens",
    "Cannot process a prompt of 9000 tokens with a context of 8192",
    "ValueError: Requested tokens (9000) exceed context window of 8192",
    "The chat history is too long for the model",
    "The conversation has grown too long",
    "Prompt tokens exceed limit: 9000 > 8192",
    "The input tokens exceed the max length: 9000/8192",
    "prompt (9000 tokens) + max_tokens (1000) exceeds context window (8192)",
    "the total number of tokens (prompt + max_new_tokens) 9000 exceeds the maximum 8192",
    "Your request was too long: 9000 tokens exceed the 8192 token context",
    "Prompt is longer than the model's context",
    "Too many tokens in prompt: 9000, max: 8192",
    "input_tokens (9000) must not exceed 8192",
    "Input exceeds the limit of 8192 tokens",
    "Max context length reached",
    "context limit reached",
    "The text exceeds the model's maximum token limit",
    "exceeds the maximum number of tokens (8192) the model can process",
    "Request exceeds the model's maximum token count",
    "Token count exceeds the model's limit: 9000 > 8192",
    "The total tokens 9000 exceeds the model max length 8192",
    "length of input tokens 9000 exceeds max_model_len 8192",
    "Prompt with 9000 tokens exceeds KV cache capacity of 8192 tokens",
    "输入token数超过模型最大长度限制",
    "请求的token数量超过了模型的最大上下文长度",
    "This model can handle at most 8192 tokens of context; this request is 9000.",
    "the prompt is larger than what the model accepts (9000 tokens, limit 8192)",
    "Max input tokens exceeded",
    "prompt tokens too long",
    # Qianfan, Volcengine Ark, z.ai, DashScope; other languages; what numbers tell
    "Range of input length should be [1, 129024]",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
    "Prompt tokens too long",
    "the max input characters is 516096",
    "Input length 203743 exceeds the maximum length 202752",
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 275032)",
    "输入长度超过模型最大上下文长度",
    "输入的token数量超过了模型的最大限制",
    "请求的 token 数超过模型上下文窗口",
    "超出最大上下文长度",
    "您的输入过长，已超出模型支持的最大长度",
    "当前对话轮数过多，上下文已超出限制",
    "请求总tokens数超过模型最大限制32768",
    "模型最大上下文长度为 32768，当前输入 40000 tokens",
    "最大输入长度为30720，当前为40000",
    "文本长度超出模型限制",
    "token 超限，请减少输入",
    "输入 tokens 超过上限",
    "prompt长度超过最大限制",
    "消息内容超出最大token限制",
    "消息总长度不能超过 128000 tokens",
    "请求内容超过大模型内部限制",
    "input tokens 数量不能大于 30000",
    "输入tokens数大于最大值",
    "messages 总长度超长",
    "对话历史过长，请开启新对话",
    "請求的內容超過模型的最大上下文長度",
    "輸入過長",
    "入力が長すぎます。モデルの最大コンテキスト長は8192トークンです。",
    "入力トークン数がモデルの上限を超えています",
    "コンテキスト長を超えました",
    "프롬프트가 너무 깁니다. 최대 컨텍스트 길이는 8192 토큰입니다.",
    "입력 토큰 수가 최대 한도를 초과했습니다",
    "Prompt has 9000 tokens, but only 8192 are available.",
    "The model can only process 8192 tokens of input; received 9000.",
    "Request contains 9000 tokens which does not fit into 8192.",
    "input tokens (9000) > n_ctx (8192)",
    "Prompt cannot be processed: 9000/8192 tokens",
    "Sequence too long: 9000 tokens, max_seq_len 8192",
    "Your messages use 9000 of 8192 tokens.",
    "maximum number of input tokens is 8192, got 9000",
    "string_above_max_context",
    "Prompt too large for the loaded model (9000 tokens, context 8192)",
    "The number of tokens in the prompt (9000) plus max_tokens (100) is greater than the context 8192",
    "Context length 8192 tokens is smaller than prompt 9000",
    "kv cache is full, the context is exhausted",
    "Failed to process prompt: context full",
    "decode: failed to find a memory slot for batch of size 9000, context is full",
    "max_input_tokens 8192 < 9000",
    "Value error, prompt token count of 9000 exceeds limit of 8192.",
    "The engine prompt length 9000 exceeds the max_model_len 8192",
    "Please ensure prompt length is less than max_seq_len",
    "Input sequence length (9000) must be less than max position embeddings (8192)",
    "Die Eingabe überschreitet die maximale Kontextlänge von 8192 Tokens.",
    "Der Prompt ist zu lang: 9000 Tokens, erlaubt sind 8192.",
    "Die Anfrage ist zu lang für das Kontextfenster des Modells (8192 Token).",
    "Die Anzahl der Eingabetoken (9000) übersteigt das Limit von 8192.",
    "Kontextlänge überschritten",
    "Ihre Nachricht ist zu lang. Bitte kürzen Sie die Unterhaltung.",
    "La longueur du prompt (9000 tokens) dépasse la longueur maximale du contexte (8192).",
    "Le contexte est trop long : 9000 jetons pour un maximum de 8192.",
    "La requête dépasse la fenêtre de contexte du modèle.",
    "L'entrée comporte 9000 tokens, ce qui dépasse la limite de 8192 tokens.",
    "Votre message est trop long pour ce modèle (max 8192 tokens).",
    "La entrada supera el límite de contexto de 8192 tokens.",
    "El prompt es demasiado largo: 9000 tokens > 8192 como máximo.",
    "La conversación excede la ventana de contexto del modelo.",
    "El número de tokens de la solicitud (9000) excede el máximo permitido (8192).",
    "El mensaje es demasiado largo",
    "A entrada excede o comprimento máximo de contexto (8192 tokens).",
    "O prompt é muito longo: 9000 tokens, máximo 8192.",
    "A conversa ultrapassa a janela de contexto do modelo.",
    "A mensagem é longa demais para o modelo.",
    "Il prompt è troppo lungo: 9000 token, il massimo è 8192.",
    "La richiesta supera la lunghezza massima del contesto (8192 token).",
    "La conversazione supera la finestra di contesto del modello.",
    "L'input supera il numero massimo di token (8192).",
    "Длина запроса превышает максимальный контекст модели (8192 токенов).",
    "Запрос слишком длинный: 9000 токенов, максимум 8192.",
    "Превышена максимальная длина контекста",
    "Количество токенов во входных данных (9000) превышает лимит 8192.",
    "Промпт слишком большой: 9000 токенов, лимит 8192",
]
# A limit for a time, of a plan, of a key; of the output; of bytes, pictures, files, characters of a field, of a list; others.
OTHERWISE = [
    "'max_tokens' or 'max_completion_tokens' is too large: 40000. This model's maximum context length is 32768 tokens and your "
    "request has 23 input tokens (40000 > 32768 - 23).",
    "This model's maximum context length is 8192 tokens. However, you requested 9000 output tokens and your prompt contains 5 "
    "input tokens, for a total of 9005 tokens.",
    "This model's maximum context length is 8192 tokens. However, you requested 9005 tokens (5 in the messages, 9000 in the "
    "completion).",
    "Too many tokens, please wait before trying again.",
    (
        "Request too large: the limit of tokens per minute is 6000, requested 7100, please reduce your "
        "message size and try again."
    ),
    (
        "Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit 8000, "
        "Requested 11881, Please reduce your message size and try again."
    ),
    (
        "Rate limit reached for m on tokens per min (TPM): Limit 30000, Requested 50000. The input or output "
        "tokens must be reduced in order to run successfully."
    ),
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
    "Rate limit exceeded: too many tokens per minute",
    "You exceeded your current quota, please check your plan and billing details.",
    "request reached organization TPD rate limit, current: 1506556, limit: 1500000",
    "Daily token limit reached for this key",
    "Request too large for model",
    "Too many tokens per day, please wait before trying again.",
    (
        "This endpoint's maximum context length is 262144 tokens. However, you requested about 284283 tokens (8963 of text "
        "input, 13176 of tool input, 262144 in the output). Please reduce the length of either one."
    ),
    "max_tokens is too large: 64000. This model supports at most 16384 completion tokens, whereas you provided 64000.",
    "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-x",
    (
        "max_tokens=40000 cannot be greater than max_model_len=32768. Please request fewer output tokens. "
        "(parameter=max_tokens, value=40000)"
    ),
    (
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than "
        "the `context_window` for this model"
    ),
    "Range of max_tokens should be [1, 8192]",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "max_tokens exceeds the limit of 8192",
    "max_tokens must be at most 4096",
    (
        "The maximum tokens you requested exceeds the model limit of 8192. Try again with a maximum tokens "
        "value that is lower than 8192."
    ),
    (
        "Unable to submit request because it has a maxOutputTokens value of 70000 but the supported range is "
        "from 1 (inclusive) to 65537 (exclusive). Update the value and try again."
    ),
    "max_completion_tokens (100000) exceeds the context window of 32768",
    "The thinking_budget parameter must be a positive integer and not greater than 38912",
    "`max_tokens` must be greater than `thinking.budget_tokens`",
    "Maximum output tokens reached: too many tokens",
    "Request entity too large",
    "Payload too large",
    "http: request body too large",
    "Request body is too large (33554432 > 10485760 bytes)",
    "Request exceeds the maximum size",
    "Request size exceeds the limit of 32 MB",
    "The request body length exceeds the limit",
    "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
    "At most 5 image(s) may be provided in one prompt.",
    "Too many images in request. The maximum is 20.",
    "Image size is too large: the maximum is 8000x8000 pixels",
    "The image is too large: 20971520 pixels, more than 16777216",
    "messages: too many images and documents: 101 + 0 > 100",
    (
        "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array "
        "with length 2049 instead."
    ),
    (
        "Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64, but got a "
        "string with length 66 instead."
    ),
    "messages[2].name exceeds the maximum length of 64",
    "tools[0].function.description: string too long. Expected a string with maximum length 1024",
    "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 instead.",
    "prompt_cache_key is too long: the maximum length is 64",
    "Tool argument validation failed: input length exceeds 1000 characters",
    "Model context window too small (minimum is 128k tokens)",
    "Token id 200000 is out of vocabulary",
    "The prompt contains token id 200000, greater than the maximum 151935",
    "truncate_prompt_tokens value (9000) is greater than max_model_len (8192). Please request a smaller truncation size.",
    (
        '[{"type": "less_than_equal", "loc": ["body", "max_completion_tokens"], "msg": "Input should be less '
        'than or equal to 4096", "input": 100000, "ctx": {"le": 4096}}]'
    ),
    (
        '[{"type": "less_than_equal", "loc": ["body", "top_logprobs"], "msg": "Input should be less than or '
        'equal to 20", "input": 30}]'
    ),
    ('[{"type": "too_long", "loc": ["body", "tools"], "msg": "List should have at most 128 items after validation, not 200"}]'),
    ('[{"type": "string_too_long", "loc": ["body", "user"], "msg": "String should have at most 64 characters"}]'),
    "Conversation roles must alternate user/assistant/user/assistant/...",
    "messages must contain at least one message",
    "The number of input messages must be odd",
    "The model `m` does not exist",
    "CUDA out of memory",
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "top_p must be less than or equal to 1",
    "temperature must be between 0 and 2",
    "Unknown field `max_context_length`",
    "Unsupported parameter: context_window",
    "Too many tools: 200 exceeds the maximum of 128",
    "Function name exceeds max length",
    "Schema is too large: the total length of property names exceeds 15000 characters",
    "账户余额不足",
    "输入的图片过大",
    "请求过于频繁，超过每分钟限制",
    "max_tokens 超过最大限制",
    "The upload is too large",
    "Insufficient balance",
    "logprobs must be at most 20",
    "Budget has been exceeded! Current cost: 10.2, Max budget: 10.0",
    "Concurrent request limit exceeded",
    "No more than 1000 requests in 60 seconds",
    "Request timed out after 600 seconds, more than allowed",
    "Your request was rejected by the safety system because the prompt is unsafe",
    "system prompt must come first in messages",
    "Input should be a valid string",
    "the context of this conversation was lost",
    "This model only supports prompt caching for prompts of at least 1024 tokens, got 2000",
    "Prompt tokens details are only supported for model gpt-2000",
    "Your prompt was flagged (id 123456), max_tokens 300",
    "The prompt has 500 tokens; logprobs are limited to 100 tokens of output",
    "Prompt blocked: more than one policy was violated",
    "Unsupported value: 'max_tokens' exceeds the model maximum",
    "max_output_tokens is too large for this model",
    "You requested 9000 output tokens, but the model supports at most 4096",
    "The response exceeded the maximum number of tokens",
    "Your account has reached its token limit",
    "You have exceeded your token limit for this month",
    "You have used 100000 of 100000 tokens this month",
    "monthly token limit exceeded",
    "Too many requests in flight: the limit is 16",
    "Rate limited: 9000 tokens > 8000 TPM",
    "Input image is too large",
    "The audio file is too long: maximum 25 MB",
    "Payload exceeds maximum size of 10485760 bytes",
    "413 Request Entity Too Large",
    "file size exceeds the limit",
    "The tool result is too large",
    "messages[0].content[1].image_url: the image exceeds the maximum of 2048 tokens",
    "Number of images exceeds the limit of 4 in prompt",
    "At most 0 image(s) may be provided in one prompt.",
    "The number of tools exceeds the limit of 128",
    "Insufficient tokens remaining in your plan",
    "seed must be less than 4294967296",
    "n must be less than 9",
    "best_of must be greater than n",
    "input must not be empty",
    "stop sequence is too long",
    "Token budget exceeded for project",
    "API key has exceeded its token budget of 100000",
    "Your credit balance is too low",
    "The request timed out",
    "Request queue is too long, please retry",
    "Queue is full: too many requests waiting",
    "max concurrent requests exceeded",
    "Requests are limited to 10 per second",
    "reasoning_effort must be one of low, medium, high",
    "The model is overloaded",
    "too many tokens requested for completion",
    "The grammar is too large",
    "response_format schema exceeds limit of 5000 properties",
    "Video has more than 128 frames",
    "session expired",
    "Session limit reached",
    "This organization has been disabled",
    "Usage limit exceeded",
    "Your key has exceeded the token limit for model gpt-x",
    "Token limit exceeded for model m: upgrade your plan",
    "You exceeded the total tokens of your plan",
    "tokens remaining: 0, limit: 50000",
    "You have hit your limit: 50000 tokens per 5 hours",
    "The upstream answered with more than one message",
    "image token count exceeds limit",
    "The image you sent in the messages is too large",
    "The file in your prompt is too large",
    "system_fingerprint must be less than 64 characters",
    "Reasoning tokens exceed the limit of 32768",
    "max_tokens + thinking budget exceeds the maximum of 32768",
    "max_completion_tokens must be at most the context length of 8192",
    "Extra usage is required for long context requests",
    "Long context beta is not yet available for this subscription",
    "Prompt caching is not supported: cached tokens limit 4",
    "Context window of 1M tokens is not enabled for your organization",
    # in other languages: limits of a time, an account, the output, or a part of the request
    "每分钟输入 tokens 超过限制",
    "输入 tokens 超过每分钟上限",
    "请求过于频繁，tokens 超出限制",
    "您的账户额度不足，token 超限",
    "max_tokens 不能超过 8192",
    "最大输出长度超过限制 8192",
    "输出 tokens 超过上限",
    "图片过大，超过 10MB",
    "图像尺寸超过限制",
    "上传的文件过大",
    "文件长度超过限制",
    "并发数超过限制",
    "参数 top_p 超出范围",
    "temperature 超出取值范围",
    "输入的图片数量超过上限",
    "函数名称长度超过限制",
    "工具数量超过限制",
    "输入内容包含敏感信息",
    "输入数据可能包含不合适的内容",
    "消息格式错误",
    "模型不存在",
    "当日 token 用量超过限额",
    "套餐内 tokens 已用完",
    "tokens 配额已超限",
    "请求超时",
    "输入音频时长超过限制",
    "生成内容过长",
    "Das Bild ist zu groß: 20 MB",
    "Das Tageslimit an Tokens ist überschritten",
    "La imagen es demasiado grande",
    "Le nombre de requêtes par minute dépasse la limite",
    "Vous avez dépassé votre quota",
    "El límite de tokens por minuto se excedió",
    "1分あたりのトークン数の上限を超えました",
    "출력 토큰 수가 한도를 초과했습니다",
    "画像が大きすぎます",
    "出力トークンの上限を超えました",
    "Stop sequence is too long",
    "The name of tool 3 is too long: 80 > 64",
    "metadata value too long",
    "user id is too long",
    "image too large",
    "request entity too large",
    "image_too_large",
    "file_too_large",
    "array_above_max_length",
    "tokens_limit_reached",
    "The number of tools exceeds the maximum of 128",
    "tool description exceeds 1024 characters",
    "n must be at most 1",
    "Thinking budget exceeds the limit",
    "The KV cache is full; retry later",
    "Input should be less than or equal to 2",
    "messages: at most 100 images",
    "seed must be less than 2**32",
    "top_logprobs must be at most 20",
    "The requested output tokens exceed the model's limit of 4096",
    "Free tier: maximum input of 8000 tokens per request exceeded",
    "The model is overloaded. Please try again later.",
    "Prompt injection detected: input too risky",
    "Das Limit von 90000 Tokens pro Minute wurde überschritten.",
    "Sie haben Ihr Kontingent überschritten: 9000 Tokens",
    "Das Bild überschreitet die maximale Größe von 2048 Pixeln.",
    "Die Datei ist zu groß",
    "Die maximale Ausgabelänge von 4096 Tokens wurde überschritten.",
    "Die Antwort ist zu lang",
    "max_tokens überschreitet das Maximum von 4096.",
    "Zu viele Anfragen",
    "Der Name der Funktion ist zu lang",
    "La limite de tokens par minute est dépassée.",
    "Le fichier est trop volumineux",
    "L'image est trop grande",
    "Le nombre d'images dépasse la limite.",
    "La réponse dépasse le nombre maximal de tokens.",
    "Ha superado su cuota mensual de tokens",
    "La respuesta supera el máximo de tokens de salida",
    "O limite de tokens por minuto foi excedido",
    "A imagem é muito grande",
    "O arquivo é grande demais",
    "Saldo insuficiente: limite excedido",
    "Il limite di token al minuto è stato superato",
    "L'immagine è troppo grande",
    "La risposta supera il limite di token",
    "Превышен лимит запросов в минуту",
    "Превышен лимит токенов в минуту",
    "Превышена квота токенов",
    "Изображение слишком большое",
    "Файл слишком большой",
    "Превышено максимальное число токенов ответа",
    "Превышено время ожидания запроса",
    "La temperatura supera el máximo permitido",
    "Die Temperatur überschreitet das Maximum von 2",
    "Le délai d'attente est dépassé",
    "Zeitüberschreitung der Anfrage",
    "Se excedió el tiempo de espera de la solicitud",
    "Tempo limite da requisição excedido",
    "Ihr Konto hat das monatliche Tokenlimit überschritten",
    "Превышено количество одновременных запросов",
    "Il numero di strumenti supera il massimo di 128",
    "La description de l'outil est trop longue",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_a_message_that_says_that_the_prompt_is_too_long(message: str) -> None:
    error = read_error(400, json.dumps({"error": {"message": message, "type": "BadRequestError"}}).encode())
    assert (error.status, error.code, error.message) == (400, "context_length_exceeded", message)


@pytest.mark.parametrize("message", OTHERWISE)
def test_a_message_that_says_something_else(message: str) -> None:
    """At the code of an overflow a client shortens its history, and asks again: in a loop, if that was not the reason."""
    error = read_error(400, json.dumps({"error": {"message": message}}).encode())
    assert error.code != "context_length_exceeded"


@pytest.mark.parametrize(
    "code",
    [
        "context_length_exceeded",
        "exceed_context_size_error",
        "context_window_exceeded",
        "model_context_window_exceeded",
        "model_max_prompt_tokens_exceeded",
        "prompt_too_long",
        "input_too_long",
        "ContextWindowExceededError",
        "OutofContextError",
        "ContextLengthExceeded",
        "max_context_length_exceeded",
        "context_overflow",
        "CONTEXT_LENGTH_EXCEEDED",
    ],
)
def test_codes_and_types_that_say_it(code: str) -> None:
    assert names_overflow(code)
    for name in ("code", "type"):
        for status in (400, 413, 500, 200):
            body = {"error": {"message": "no", name: code}}
            assert read_error(status, json.dumps(body).encode()).code == "context_length_exceeded"


@pytest.mark.parametrize(
    "code",
    [
        "rate_limit_exceeded",
        "tokens",
        "request_too_large",
        "string_above_max_length",
        "max_tokens_exceeded",
        "invalid_prompt",
        "BadRequestError",
        "invalid_request_error",
        "insufficient_quota",
        "token_quota_exceeded",
        "prompt_cache_key_too_long",
        "content_too_large",
        "payload_too_large",
    ],
)
def test_codes_that_say_something_else(code: str) -> None:
    assert not names_overflow(code)


@pytest.mark.parametrize(
    ("status", "is_overflow"),
    [
        (400, True),
        (413, True),
        (422, True),
        (500, True),
        (502, True),
        (503, True),
        (406, True),
        (424, True),
        (401, False),
        (402, False),
        (403, False),
        (404, False),
        (429, False),
        (504, False),
        (529, False),
    ],
)
def test_the_status_has_to_fit(status: int, is_overflow: bool) -> None:
    error = read_error(status, b'{"error": {"message": "prompt is too long: 9000 tokens > 8192 maximum"}}')
    assert (error.code == "context_length_exceeded") is is_overflow


def test_a_request_that_is_more_than_the_tokens_of_a_minute_is_a_rate_limit_whatever_the_status() -> None:
    body = {"error": {"message": "Request too large: the context is longer than the limit", "code": "rate_limit_exceeded"}}
    error = read_error(413, json.dumps(body).encode())
    assert (error.status, error.code) == (429, "rate_limit_exceeded")


def test_what_a_server_repeats_of_the_request_says_nothing() -> None:
    echo = {"messages": [{"role": "user", "content": "it says: prompt is too long, 9000 tokens > 8192 maximum"}]}
    body = {"detail": [{"type": "missing", "loc": ["body", "tools"], "msg": "Field required", "input": echo}]}
    assert read_error(422, json.dumps(body).encode()).code == "invalid_prompt"


@pytest.mark.parametrize(
    "piece", ["prompt is ", "a", "1 ", "length of ", "tokens in ", ".", "max ", "limit a b c ", "1 tokens ", "\n"]
)
def test_a_hostile_message_takes_no_time(piece: str) -> None:
    begin = time.process_time()
    says_overflow(piece * 100_000)
    assert time.process_time() - begin < 0.5


_WORDS = [
    "prompt",
    "tokens",
    "exceeds",
    "the",
    "limit",
    "of",
    "8192",
    "max_tokens",
    "context",
    "length",
    "is",
    "too",
    "long",
    ".",
    "9000",
]


@given(st.lists(st.sampled_from(_WORDS), max_size=12).map(" ".join))
def test_a_limit_for_a_time_is_never_one_of_the_context(words: str) -> None:
    assert not says_overflow(f"{words} per minute")


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    assert says_overflow(text) in (True, False)
