import { APICallError } from '@ai-sdk/provider'
import { describe, expect, it } from 'vitest'
import { classifyModelError } from '../../src/executions/engine/models/model-errors.ts'

const failureOf = (statusCode: number, message: string) =>
  classifyModelError(
    new APICallError({
      message: 'x',
      url: 'http://localhost',
      requestBodyValues: {},
      statusCode,
      responseHeaders: {},
      responseBody: JSON.stringify({ error: { message } }),
    }),
  )

describe('a refusal of a request that is too long', () => {
  // The messages are those of public bug reports, with their numbers.
  it.each<[string, number, string, number | null]>([
    [
      'vLLM',
      400,
      'The prompt (total length 25938) is too long to fit into the model (context length 4096). Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.',
      4096,
    ],
    [
      'vLLM',
      400,
      'The decoder prompt (length 40000) is longer than the maximum model length of 32768. Make sure that `max_model_len` is no smaller than the number of text tokens.',
      32768,
    ],
    ['vLLM', 400, 'Prompt length of 5016 is longer than the maximum model length of 4096.', 4096],
    [
      'vLLM',
      400,
      "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
      4096,
    ],
    [
      'vLLM',
      400,
      "You passed 5000 input tokens and requested 0 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4096 tokens. Please reduce the length of the input prompt.",
      4096,
    ],
    [
      'LM Studio',
      400,
      'Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input.',
      32768,
    ],
    [
      'LM Studio',
      400,
      'Reached context length of 4096 tokens with model (arch: qwen3vlmoe) that does not currently support mid-generation context overflow. Try reloading with a larger context length or shortening the prompt/chat.',
      4096,
    ],
    [
      'LM Studio',
      400,
      'The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 10136>= n_ctx: 8192). Try to load the model with a larger context length, or provide a shorter input',
      8192,
    ],
    ['LM Studio', 400, 'Context size has been exceeded.', null],
    ['Volcengine', 400, 'Input length 140000 exceeds the maximum length 131072. Request id: 1', 131072],
    ['OpenVINO', 400, 'Number of prompt tokens: 9000 exceeds model max length: 8192', 8192],
    ['TensorRT-LLM', 400, 'Prompt length (9000) exceeds maximum input length (8192).', 8192],
    [
      'TensorRT-LLM',
      400,
      'The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)',
      8192,
    ],
    [
      'watsonx',
      400,
      'Invalid input argument: the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model',
      8192,
    ],
    ['Databricks', 400, 'prompt token count (33000) cannot exceed 32768.', 32768],
    [
      'Cloudflare',
      400,
      'The estimated number of input and maximum output tokens (8300) exceeded this model context window limit (8192).',
      8192,
    ],
    ['Bedrock', 400, 'Input Tokens Exceeded: Number of input tokens exceeds maximum length.', null],
    ['Baidu', 400, 'prompt tokens too long', null],
    ['Baidu', 400, 'the max input characters is 11200', null],
    ['ExLlama', 400, 'Context length 14023 exceeds max_seq_len 8192', 8192],
    ['Snowflake', 400, 'max tokens of 128000 exceeded', 128000],
    ['Tencent', 400, '输入内容长度超限', null],
    [
      'llama.cpp',
      400,
      'request (42947 tokens) exceeds the available context size (8192 tokens), try increasing it',
      8192,
    ],
    ['llama.cpp', 500, 'the request exceeds the available context size, try increasing it', null],
    ['llama.cpp', 500, 'context shift is disabled', null],
    ['llama.cpp', 500, 'Input prompt is too big compared to KV size. Please try increasing KV size.', null],
    [
      'DeepSeek',
      400,
      "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
      131072,
    ],
    ['Kimi', 400, 'Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)', 262144],
    ['MiniMax', 400, 'invalid params, context window exceeds limit (2013)', null],
    [
      'Mistral',
      400,
      'Prompt contains 150000 tokens and 0 draft tokens, too large for model with 131072 maximum context length',
      131072,
    ],
    ['z.ai', 400, 'Prompt exceeds max length', null],
    ['Zhipu', 400, 'Prompt 超长', null],
    ['Alibaba', 400, '<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]', 30720],
    ['Copilot', 400, 'prompt token count of 130000 exceeds the limit of 128000', 128000],
    [
      'OpenRouter',
      400,
      'This endpoint\'s maximum context length is 131072 tokens. However, you requested about 150000 tokens (140000 of text input, 2000 of tool input, 8000 in the output). Please reduce the length of either one, or use the "middle-out" transform to compress your prompt automatically.',
      131072,
    ],
    ['Groq', 400, 'Please reduce the length of the messages or completion.', null],
    ['xAI', 400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131072],
    [
      'Together',
      422,
      'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 512 `max_new_tokens`',
      8193,
    ],
    ['Together', 400, "The input (5000 tokens) is longer than the model's context length (4096 tokens).", 4096],
    ['TGI', 422, 'Input validation error: `inputs` must have less than 4095 tokens. Given: 5000', 4095],
    ['Ollama', 400, 'prompt too long; exceeded max context length by 100 tokens', null],
    ['Ollama', 400, 'the input length exceeds the context length', null],
    ['Ollama', 400, 'input length exceeds maximum context length', null],
    [
      'OpenAI',
      400,
      'Your input exceeds the context window of this model. Please adjust your input and try again.',
      null,
    ],
    [
      'Azure',
      400,
      'Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens. Please reduce the length of the messages.',
      272000,
    ],
    [
      'Anthropic',
      400,
      'input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again',
      200000,
    ],
    ['Anthropic', 400, 'prompt is too long: 210000 tokens > 200000 maximum', 200000],
    ['Anthropic', 413, 'Request exceeds the maximum size', null],
    ['Bedrock', 400, 'The model returned the following errors: Input is too long for requested model.', null],
    ['Bedrock', 400, 'Too many input tokens. Max input tokens: 8192, request input token count: 9000', 8192],
    [
      'Bedrock',
      400,
      'Malformed input request: expected maxLength: 20000, actual: 30000, please reformat your input and try again.',
      null,
    ],
    ['Bedrock', 400, 'too many total text bytes: 500000 > 400000', null],
    [
      'Gemini',
      400,
      'Unable to submit request because the input token count is 40000 but model only supports up to 32768. Reduce the input token count and try again.',
      32768,
    ],
    ['Gemini', 400, 'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).', 1048576],
    ['Gemini', 400, 'Request payload size exceeds the limit: 20971520 bytes.', null],
    [
      'Cohere',
      400,
      'too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt',
      4081,
    ],
    [
      'Cohere',
      400,
      "too many tokens: size limit exceeded by 100 tokens. Try using shorter or fewer inputs, or setting prompt_truncation='AUTO'.",
      null,
    ],
    [
      'SGLang',
      400,
      "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4500 tokens from the input messages and 500 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
      4096,
    ],
    [
      'SGLang',
      400,
      'Input length (5000 tokens) exceeds the maximum allowed length (4090 tokens). Use a shorter input or enable --allow-auto-truncate.',
      4090,
    ],
    ['Fireworks', 400, 'The prompt is too long: 150000, model maximum context length: 131071', 131071],
    [
      'Cerebras',
      400,
      'Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192',
      8192,
    ],
    ['DS4', 400, 'Prompt has 5000 tokens, but the configured context size is 4096 tokens', 4096],
    ['gateway', 400, 'litellm.ContextWindowExceededError: prompt is over the limit', null],
    ['gateway', 400, 'Input tokens 300000 exceeded the limit 262144 of the model', 262144],
    ['gateway', 400, 'Total tokens (prompt 130000 + max_new 4096) exceeds limit 131072', 131072],
    ['gateway', 422, 'your prompt has 200001 tokens, which is more than the 200000 the model can handle', 200000],
    ['gateway', 400, 'The messages exceed the allowed number of tokens for this model', null],
    ['Ollama', 500, 'no user query found in messages', null],
    ['gateway', 413, 'Payload Too Large', null],
    ['gateway', 400, 'token limit exceeded', null],
  ])('a refusal of %s for a request that is too long is understood: %i %s', (_, status, message, contextWindow) => {
    expect(failureOf(status, message)).toMatchObject({ kind: 'context_too_long', contextWindow })
  })

  it.each<[number, string]>([
    [400, 'max_tokens exceeds the limit of 8192'],
    [400, 'max_tokens must be less than or equal to 8192, got 9000'],
    [
      400,
      '`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens` is less than the `context_window` for this model',
    ],
    [400, 'max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-x'],
    [429, 'Rate limit reached: token limit exceeded, 30000 tokens per minute'],
    [
      429,
      'You exceeded your current quota: Quota exceeded for metric: generate_content_free_tier_input_token_count, limit: 250000',
    ],
    [400, 'messages.1.content: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes'],
    [400, 'tools.0.function.description: string too long. Expected a string with maximum length 1024'],
    [
      400,
      "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 130 instead.",
    ],
  ])('differs from another refusal: %i %s', (status, message) => {
    expect(failureOf(status, message).kind).not.toBe('context_too_long')
  })
})
