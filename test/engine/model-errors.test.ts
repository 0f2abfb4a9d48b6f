import { APICallError } from '@ai-sdk/provider'
import { describe, expect, it } from 'vitest'
import { adviceFor, withAdvice } from '../../src/executions/engine/models/advice.ts'
import {
  classifyModelError,
  ModelError,
  NO_END,
  ReportedError,
} from '../../src/executions/engine/models/model-errors.ts'
import { oddAnswer } from '../../src/executions/engine/models/odd-answers.ts'
import { EmptyReply } from '../../src/executions/engine/run/failures.ts'

const NOW = Date.parse('2026-01-01T00:00:00Z')

/** An HTTP answer as `post` and the provider package throw it. */
const answered = (status: number, body: unknown, headers: Record<string, string> = {}) =>
  new APICallError({
    message: `Status ${status}`,
    url: 'http://localhost',
    requestBodyValues: {},
    statusCode: status,
    responseHeaders: headers,
    responseBody: typeof body === 'string' ? body : JSON.stringify(body),
  })

const failureOf = (error: unknown) => classifyModelError(error, { provider: 'compatible' }, NOW)

describe('the reason in an error body', () => {
  const reason = 'Function call is missing a thought_signature'
  it.each<[string, unknown]>([
    ['of OpenAI', { error: { message: reason, type: 'x', param: null, code: null } }],
    ['that is a list (Gemini)', [{ error: { code: 400, message: reason, status: 'INVALID_ARGUMENT' } }]],
    ['with the message at its top (vLLM)', { object: 'error', message: reason, type: 'invalid_request_error' }],
    ['with a list of errors (Cloudflare)', { success: false, errors: [{ code: 5006, message: reason }], result: null }],
    ['with error_msg (Baidu)', { error_code: 336003, error_msg: reason }],
    ['with code and msg', { code: 400, msg: reason }],
    ['with error_type and error_message', { error_type: 'invalid', error_message: reason }],
    ['with Message (AWS)', { Message: reason }],
    ['with error as text', { error: reason, error_type: 'validation' }],
    ['with an error in an error', { error: { error: { message: reason } } }],
    ['of problem details', { title: 'Bad', status: 400, detail: reason }],
    ['with a list of texts (Nest)', { statusCode: 400, message: [reason], error: 'Bad Request' }],
    ['with details as text', { error: { code: 'x', details: reason } }],
    ['of Tencent', { Response: { Error: { Code: 'x', Message: reason } } }],
    ['with JSON as its message', { error: { message: JSON.stringify({ error: { message: reason } }) } }],
    ['with a description (Writer)', { tpe: 'bad_request', errors: [{ description: reason, key: 'x' }] }],
    [
      'of a model behind Databricks',
      { error: 'Received error from x', external_model_message: { error_code: 'X', message: reason } },
    ],
    ['that Zod formats (Venice)', { error: 'Invalid request parameters', details: { _errors: [reason] } }],
    ['of plain text', reason],
    ['of MiniMax', { base_resp: { status_code: 2013, status_msg: reason } }],
    ['whose parameter is the reason (Xiaomi)', { error: { message: 'Param Incorrect', param: reason, type: '' } }],
    ['that is an event', `data: ${JSON.stringify({ error: { message: reason } })}\n\n`],
  ])('%s is quoted with the status', (_, body) => {
    expect(failureOf(answered(400, body)).detail).toBe(`HTTP 400: ${reason}`)
  })

  it('the reason in an error body of FastAPI names the field, and never its input', () => {
    const complaint = {
      type: 'extra_forbidden',
      loc: ['body', 'x'],
      msg: 'Extra inputs are not permitted',
      input: 'SECRET',
    }
    const printed =
      "[{'type': 'extra_forbidden', 'loc': ('body', 'x'), 'msg': 'Extra inputs are not permitted', 'input': 'SECRET'}]"
    for (const body of [
      { detail: [complaint] },
      { object: 'error', message: { detail: [complaint] } },
      { object: 'error', message: printed },
      { error: { message: `1 validation error:\n  ${printed.slice(1, -1)}` } },
    ]) {
      const { detail, kind, field } = failureOf(answered(422, body))
      expect([detail, kind, field]).toEqual(['HTTP 422: x: Extra inputs are not permitted', 'unsupported', 'x'])
    }
  })

  it.each<[string, unknown]>([
    [
      'Zod, as a text (LM Studio)',
      JSON.stringify([{ code: 'x', path: ['tools', 2, 'x'], message: 'Required' }], null, 2),
    ],
    ['Zod, in a list', { issues: [{ path: ['tools', 2, 'x'], message: 'Required' }], message: 'Error' }],
    [
      'Zod, of alternatives',
      [{ path: ['tools', 2, 'x'], message: 'Invalid input', errors: [[{ path: [], message: 'Required' }]] }],
    ],
    ['Ajv', [{ instancePath: '/tools/2/x', keyword: 'required', message: 'Required' }]],
  ])('the reason in an error body of %s names the place', (_, error) => {
    const { detail, field } = failureOf(answered(400, { error }))
    expect([detail, field]).toEqual(['HTTP 400: tools.2.x: Required', 'tools.2.x'])
  })

  it('the path of a request in an error body is no place in its body', () => {
    const body = { status: 404, error: 'Not Found', path: '/v1/chat/completions' }
    expect(failureOf(answered(404, body))).toMatchObject({ detail: 'HTTP 404: Not Found', field: null })
  })

  it('the reason in an error body of a gateway is that of the named provider behind it', () => {
    const metadata = { raw: JSON.stringify({ error: { message: reason } }), provider_name: 'Mistral' }
    const failure = failureOf(answered(400, { error: { message: 'Provider returned error', code: 400, metadata } }))
    expect(failure).toMatchObject({ detail: `HTTP 400: ${reason} (from Mistral)`, upstream: 'Mistral' })
    const raws = [[{ error: { message: reason } }], { message: { detail: [{ loc: ['body'], msg: reason }] } }]
    for (const raw of raws.map((one) => JSON.stringify(one))) {
      const error = { message: 'Provider returned error', metadata: { raw, provider_name: 'Gemini' } }
      expect(failureOf(answered(400, { error })).detail).toBe(`HTTP 400: ${reason} (from Gemini)`)
    }
  })

  it.each<[number, unknown, string]>([
    [502, '<html><body>nginx</body></html>', 'HTTP 502: Status 502'],
    [
      403,
      '<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied by policy</Message></Error>',
      'HTTP 403: Access Denied by policy',
    ],
    [
      403,
      '<!doctype html><title>Just a moment</title>',
      'HTTP 403: the server answered with a web page titled "Just a moment"',
    ],
    [529, '', 'HTTP 529: Status 529'],
    [400, '{"error":{"mess', 'HTTP 400: Status 400'],
    [422, { detail: [{ input: 'the prompt' }] }, 'HTTP 422: Status 422'],
    [400, { request: { message: 'the prompt' } }, 'HTTP 400: Status 400'],
  ])('the reason in an error body with status %i and body %j is "%s"', (status, body, cause) => {
    expect(failureOf(answered(status, body)).detail).toBe(cause)
  })

  it('is classified without its long words, which patterns would read in quadratic time', () => {
    const message = `Invalid image ${'A'.repeat(10_000_000)}: the model does not exist`
    expect(failureOf(new ReportedError(message)).kind).toBe('unknown_model')
    expect(failureOf(answered(400, `${'A'.repeat(64_000)} prompt is too long`)).kind).toBe('context_too_long')
  })

  it('is read in Chinese, whose sentences of any length have no spaces', () => {
    const message = `${'您好，为保证服务质量，我们对所有账户进行统一管理，'.repeat(12)}余额不足，请充值。`
    expect(failureOf(answered(429, message)).kind).toBe('quota')
  })

  it('the reason in a redirect names the status and the target without its query', () => {
    const { detail } = failureOf(answered(308, '', { location: 'https://other.example/v1/?token=abc' }))
    expect(detail).toContain('HTTP 308: Status 308, a redirect to https://other.example/v1/:')
    expect(detail).not.toContain('abc')
  })

  it('the reason in an error body inside a stream has the status that it states', () => {
    expect(failureOf(new ReportedError({ code: 502, message: reason }))).toMatchObject({
      status: 502,
      detail: `HTTP 502: ${reason}`,
      retryable: true,
      kind: 'overloaded',
    })
    expect(failureOf(new ReportedError(reason))).toMatchObject({ status: null, detail: reason })
    const mistral = { object: 'error', message: reason, type: 'x', code: '1000', raw_status_code: 503 }
    expect(failureOf(new ReportedError(mistral))).toMatchObject({ status: 503, kind: 'overloaded' })
    const alibaba = '<400> InternalError.Algo.InvalidParameter: The tool_choice parameter is not supported'
    expect(failureOf(new ReportedError(alibaba))).toMatchObject({ status: 400, retryable: false })
  })
})

describe('the advice on a failure', () => {
  const settings = { key: 'THE_KEY', address: 'THE_ADDRESS' }
  const refused = (cause: string) =>
    new APICallError({ message: `Cannot connect to API: ${cause}`, url: 'http://localhost', requestBodyValues: {} })
  it.each<[unknown, string | null]>([
    [answered(401, { error: 'Wrong' }), 'Check THE_KEY'],
    [answered(403, { error: 'No' }), 'Check THE_KEY and the permissions of its account'],
    [answered(402, { error: 'No' }), 'Top up the account of the provider, or check THE_KEY'],
    [
      answered(404, { error: 'The model x does not exist' }),
      'Choose another model: GET /api/v1/models lists those of each provider',
    ],
    [
      answered(404, { type: 'error', error: { type: 'not_found_error', message: 'model: claude-x' } }),
      'Choose another model: GET /api/v1/models lists those of each provider',
    ],
    [answered(403, '<!doctype html><title>Just a moment</title>'), 'Check THE_ADDRESS'],
    [oddAnswer('{"result":{}}'), 'Check THE_ADDRESS'],
    [
      answered(401, '<html>\r\n<head><title>401 Authorization Required</title></head>'),
      'Check THE_KEY and THE_ADDRESS',
    ],
    [answered(401, '<html><title>Sign in</title></html>'), 'Check THE_ADDRESS'],
    [answered(404, { detail: 'Not Found' }), 'Check THE_ADDRESS'],
    [
      answered(400, 'Client sent an HTTP request to an HTTPS server.'),
      'Begin THE_ADDRESS with https:// instead of http://',
    ],
    [
      answered(400, { error: 'Could not finish the message because max_tokens or model output limit was reached.' }),
      'Raise maxOutputTokens in modelSettings, or lower reasoningEffort',
    ],
    [
      answered(400, { error: 'Access to Anthropic models is not allowed from unsupported countries, or regions.' }),
      expect.stringContaining('the country of this server'),
    ],
    [answered(404, { error: { code: 404, message: 'File Not Found', type: 'not_found_error' } }), 'Check THE_ADDRESS'],
    [answered(404, { detail: 'No endpoints found that can handle the requested parameters.' }), null],
    [
      answered(404, { error: 'This model is only supported in v1/responses and not in v1/chat/completions.' }),
      expect.stringContaining('OPENAI_RESPONSES_BASE_URL'),
    ],
    [
      answered(404, { error: { message: 'This model is only supported in v1/responses.', param: 'model' } }),
      expect.stringContaining('OPENAI_RESPONSES_BASE_URL'),
    ],
    [
      answered(400, { error: "The model 'x' does not support the '/v1/chat/completions' API" }),
      expect.stringContaining('OPENAI_RESPONSES_BASE_URL'),
    ],
    [
      answered(400, {
        error: "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to 'input'.",
      }),
      expect.stringContaining('OPENAI_RESPONSES_BASE_URL'),
    ],
    [
      answered(400, { error: "The model 'x' does not support the '/v1/responses' API" }),
      expect.stringContaining('set OPENAI_BASE_URL'),
    ],
    ...[
      'Invalid URL (POST /v1/responses)',
      'Unexpected endpoint or method. (POST /v1/responses)',
      'Route POST:/openai/v1/responses not found',
      'The Responses API is not implemented',
    ].map((error) => [answered(404, { error }), expect.stringContaining('set OPENAI_BASE_URL')] as [unknown, string]),
    [
      answered(400, { error: 'The model is not supported by this endpoint. Use /v1/responses instead.' }),
      expect.stringContaining('OPENAI_RESPONSES_BASE_URL'),
    ],
    [refused('connect ECONNREFUSED 127.0.0.1:9'), 'Check THE_ADDRESS and the network'],
    [oddAnswer('<html><title>Sign in</title></html>'), 'Check THE_ADDRESS'],
    [refused('The proxy 127.0.0.1:9 did not connect'), null],
    [answered(302, ''), 'Check THE_ADDRESS'],
    [answered(407, ''), 'Check the proxy and its credentials: HTTP_PROXY and HTTPS_PROXY'],
    [answered(403, 'error code: 1010'), 'Check THE_ADDRESS'],
    [
      answered(403, { error: { message: 'Country, region, or territory not supported' } }),
      expect.stringContaining('the country of this server'),
    ],
    [answered(400, { error: 'Missing required query parameter: api-version' }), 'Check the api-version in THE_ADDRESS'],
    [
      answered(400, { error: 'Model x is enabled only for api versions 2026-12-01-preview and later' }),
      'Check the api-version in THE_ADDRESS',
    ],
    [answered(400, { error: 'The prompt is too long' }), expect.stringContaining('a larger context window')],
    [answered(500, { error: 'no user query found in messages' }), expect.stringContaining('OLLAMA_CONTEXT_LENGTH')],
    [answered(400, { error: { code: 'content_filter' } }), expect.stringContaining('Change the message')],
    [new EmptyReply('content_filter', 'SAFETY', ''), expect.stringContaining('Change the message')],
    [new EmptyReply('max_tokens', 'length', ''), 'Raise maxOutputTokens in modelSettings, or lower reasoningEffort'],
    [new ModelError(NO_END, 'broken_off'), 'Send the message again, or choose another model'],
    [
      answered(429, {
        error: {
          code: 429,
          message: 'You exceeded your current quota, please check your plan and billing details.',
          details: [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '23s' }],
        },
      }),
      null,
    ],
    [
      answered(429, { error: 'You exceeded your current quota: requests per minute, limit: 0. Retry in 23s.' }),
      expect.stringMatching(/^Top up/),
    ],
    [
      answered(429, { error: { code: 'insufficient_quota' } }, { 'retry-after': '20' }),
      expect.stringMatching(/^Top up/),
    ],
    [answered(429, { error: 'Rate limit reached' }), null],
    [answered(429, { error: { resets_in_seconds: 8464 } }), 'Try again in 3 hours, or choose another model'],
    [
      answered(429, { error: 'Too many requests', retry_after: 600 }),
      'Try again in 10 minutes, or choose another model',
    ],
    [answered(400, { error: 'Bad' }), null],
  ])('the advice on a failure of %o is "%s"', (error, advice) => {
    expect(adviceFor(failureOf(error), settings)).toEqual(advice)
  })

  it('follows a cause within 500 characters', () => {
    expect(withAdvice('No.', 'Do it')).toBe('No. Do it')
    expect(withAdvice('No', 'Do it')).toBe('No. Do it')
    expect(withAdvice('Is it?', 'Do it')).toBe('Is it? Do it')
    expect(withAdvice('不行。', 'Do it')).toBe('不行。 Do it')
    expect(withAdvice('x'.repeat(500), 'Do it')).toMatch(/^x{492}…\. Do it$/)
    expect(withAdvice('x'.repeat(500), null)).toHaveLength(500)
  })
})

describe('the kind of a failure', () => {
  it.each<[number, string, string, string]>([
    [429, 'Rate limit reached for requests', 'rate_limit_exceeded', 'rate_limit'],
    [429, 'You exceeded your current quota, please check your plan and billing details', 'insufficient_quota', 'quota'],
    [402, 'Insufficient Balance', '', 'quota'],
    [529, 'Overloaded', 'overloaded_error', 'overloaded'],
    [503, 'Loading model', 'unavailable_error', 'overloaded'],
    [504, 'Gateway Time-out', '', 'timeout'],
    [401, 'Incorrect API key provided', 'invalid_api_key', 'auth'],
    [400, 'API key not valid. Please pass a valid API key.', 'INVALID_ARGUMENT', 'auth'],
    [403, 'Forbidden', '', 'auth'],
    [404, 'The model `gpt-x` does not exist or you do not have access to it.', 'model_not_found', 'unknown_model'],
    [404, 'model "llama9" not found, try pulling it first', '', 'unknown_model'],
    [404, 'models/gemini-x is not found for API version v1beta', 'NOT_FOUND', 'unknown_model'],
    [400, 'x is not a valid model ID', '', 'unknown_model'],
    [404, 'Not Found', '', 'refused'],
    [
      400,
      "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
      'context_length_exceeded',
      'context_too_long',
    ],
    [400, 'prompt is too long: 210000 tokens > 200000 maximum', 'invalid_request_error', 'context_too_long'],
    [
      400,
      'the request exceeds the available context size. try increasing the context size',
      'exceed_context_size_error',
      'context_too_long',
    ],
    [
      400,
      'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
      '',
      'context_too_long',
    ],
    [400, "The requested model 'x' is not supported.", '', 'unknown_model'],
    [403, 'Key limit exceeded (total limit).', '', 'quota'],
    [500, 'Unable to generate parser for this template: no user query found in messages', '', 'unsupported'],
    [500, 'System message must be at the beginning.', '', 'unsupported'],
    [400, 'API key expired. Please renew the API key.', 'INVALID_ARGUMENT', 'auth'],
    [400, 'Content Exists Risk', 'invalid_request_error', 'content_filter'],
    [400, "Unsupported parameter: 'safety_identifier' is not supported.", 'unsupported_parameter', 'unsupported'],
    [400, 'Invalid JSON payload received. Unknown name "safetySettings": Cannot find field.', '', 'unsupported'],
    [400, "Unknown parameter: 'moderation'.", 'unknown_parameter', 'unsupported'],
    [400, 'Names of models are case-sensitive', '', 'refused'],
    [400, 'This endpoint was flagged for removal', '', 'refused'],
    [400, 'Your request was rejected as a result of our safety system.', '', 'content_filter'],
    [400, 'Your input was flagged by our moderation system for sensitive words', '', 'content_filter'],
    [451, 'The content you provided or machine outputted is blocked.', 'censorship_blocked', 'content_filter'],
    [451, 'Unavailable', '', 'content_filter'],
    [400, 'model generated output that could not be parsed', '', 'broken_off'],
    [400, 'the request message length exceeds the limit', 'request_params_invalid', 'context_too_long'],
    [400, '资源包余量已用尽。', 'runtime_error', 'quota'],
    [404, 'could not find real modelID for x', '', 'unknown_model'],
    [400, "The 'x' model is not supported when using Codex with a ChatGPT account.", '', 'unknown_model'],
    [404, 'Not found the model x or Permission denied', 'resource_not_found_error', 'unknown_model'],
    [400, 'The provided model identifier is invalid.', '', 'unknown_model'],
    [400, '模型不存在，请检查模型代码。', '', 'unknown_model'],
    [400, 'Input is too long for requested model.', 'ValidationException', 'context_too_long'],
    [400, 'Request body too large for gpt-x model. Max size: 8000 tokens.', 'tokens_limit_reached', 'context_too_long'],
    [400, 'Prompt length 5000 is greater than max_seq_len 4096', '', 'context_too_long'],
    [400, '请求的token数超过了模型的最大上下文长度', '', 'context_too_long'],
    [413, 'Request too large for model `x` on tokens per minute (TPM)', 'rate_limit_exceeded', 'context_too_long'],
    [
      429,
      'Request too large for gpt-x in organization o on tokens per min (TPM): Limit 30000, Requested 45000.',
      'rate_limit_exceeded',
      'context_too_long',
    ],
    [
      429,
      'Rate limit reached for gpt-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.',
      'rate_limit_exceeded',
      'rate_limit',
    ],
    [
      400,
      "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
      'content_filter',
      'content_filter',
    ],
    [400, 'messages must not be empty', 'invalid_request_error', 'refused'],
    [400, "Invalid 'user': string too long. Expected at most 64.", 'string_above_max_length', 'refused'],
    [400, "Invalid 'input[2].id': string too long. Expected at most 64.", 'string_above_max_length', 'refused'],
    [400, '[input[2].id] [string_above_max_length] Invalid input', 'bad_request', 'refused'],
    [400, 'Request contains an invalid argument.', 'INVALID_ARGUMENT', 'refused'],
    [400, "Invalid 'messages': array too long. Expected an array with maximum length 2048.", '', 'context_too_long'],
    [400, 'Invalid input: sensitive words were found', '', 'content_filter'],
    [400, 'This credential is only authorized for use with Claude Code.', 'invalid_request_error', 'auth'],
    [403, '预扣费额度失败, 用户剩余额度: ¥0.230000, 需要预扣费额度: ¥0.290000', '', 'quota'],
    [403, 'token quota is not enough, token remain quota: 1, need quota: 2', '', 'quota'],
    [400, '身份验证失败', '1000', 'auth'],
    [400, '您无权访问GLM-5', '1220', 'unknown_model'],
    [400, '内容审核不通过', '', 'content_filter'],
    [400, '模型 gpt-x 已下线', '', 'unknown_model'],
    [400, '请求超时', '', 'timeout'],
    [400, '请求 tokens 超过模型限制', '', 'context_too_long'],
    [400, '入力トークン数がモデルの上限を超えています', '', 'context_too_long'],
    [400, '残高が不足しています', '', 'quota'],
    [400, '크레딧이 부족합니다. 충전해 주세요.', '', 'quota'],
    [400, 'API 키가 유효하지 않습니다.', '', 'auth'],
    [404, '모델 x을(를) 찾을 수 없습니다.', '', 'unknown_model'],
    [400, '입력 토큰이 너무 깁니다.', '', 'context_too_long'],
    [400, '부적절한 표현이 포함되어 있습니다.', '', 'content_filter'],
    [400, 'Votre crédit est épuisé.', '', 'quota'],
    [400, "La clé d'API est invalide.", '', 'auth'],
    [404, "Le modèle « x » n'existe pas.", '', 'unknown_model'],
    [400, "L'entrée est trop longue pour ce modèle.", '', 'context_too_long'],
    [400, 'La requête contient un contenu inapproprié.', '', 'content_filter'],
    [404, 'モデルが見つかりません', '', 'unknown_model'],
    [404, 'Das Modell x existiert nicht', '', 'unknown_model'],
    [400, 'Die maximale Kontextlänge wurde überschritten', '', 'context_too_long'],
    [446, 'The guardrail checks defined in the config failed.', 'hooks_failed', 'content_filter'],
    [446, 'Runtime Error', '900514', 'content_filter'],
    [424, 'Prompt blocked due to security configurations', '2016', 'content_filter'],
    [500, 'Bedrock guardrail failed: I cannot answer requests with personal data.', '500', 'content_filter'],
    [400, "Request blocked by input guardrail 'strict'", '', 'content_filter'],
    [500, "Output guardrail 'strict' failed to evaluate", '', 'overloaded'],
    [400, 'content-blocked (request id: 1)', 'content-blocked', 'content_filter'],
    [429, '余额不足或无可用资源包,请充值。', '1113', 'quota'],
    [400, 'Access denied, please make sure your account is in good standing.', 'Arrearage', 'quota'],
    [403, 'The free tier of the model has been exhausted.', 'AllocationQuota.FreeTierOnly', 'quota'],
    [429, 'Your team has used all available credits or reached its monthly spending limit.', '', 'quota'],
    [400, 'You have reached your specified API usage limits.', 'invalid_request_error', 'quota'],
    [400, 'Budget has been exceeded! Current cost: 10.2, Max budget: 10.0', 'budget_exceeded', 'quota'],
    [429, 'Rate limit reached. Upgrade at https://console.groq.com/settings/billing', '', 'rate_limit'],
    [400, 'Input data may contain inappropriate content.', 'DataInspectionFailed', 'content_filter'],
    [404, 'Your account has not activated the model x.', 'ModelNotOpen', 'unknown_model'],
    [404, 'The API deployment for this resource does not exist.', 'DeploymentNotFound', 'unknown_model'],
    [400, 'The chatCompletion operation does not work with the specified model, x.', '', 'unknown_model'],
    [400, 'No models loaded. Please load a model in the developer page.', '', 'unknown_model'],
    [404, "Function 'abc': Not found for account 'xyz'", '', 'unknown_model'],
    [404, 'No allowed providers are available for the selected model.', '', 'unknown_model'],
    [410, 'The model has reached its end of life.', 'Gone', 'unknown_model'],
    [429, 'Too many tokens, please wait before trying again.', 'ThrottlingException', 'rate_limit'],
    [429, 'You have used up your daily free allocation of 10,000 neurons.', '', 'quota'],
    [400, 'This organization has been disabled.', 'invalid_request_error', 'auth'],
    [498, 'Flex tier capacity exceeded. Please try again later.', 'capacity_exceeded', 'overloaded'],
    [499, 'The operation was cancelled.', 'CANCELLED', 'overloaded'],
    [403, 'Out of call volume quota. Quota will be replenished in 12:14:11.', '', 'quota'],
    [403, 'not enough balance', 'NOT_ENOUGH_BALANCE', 'quota'],
    [400, 'Unavailable model: gpt-x', 'unavailable_model', 'unknown_model'],
    [400, "Function id 'x' version 'null': DEGRADED function cannot be invoked", '', 'unknown_model'],
    [418, 'I am a teapot', '', 'refused'],
    [403, 'Sorry, your account balance is insufficient', '30001', 'quota'],
    [429, 'You exceeded your current token quota, please check your account balance', '', 'quota'],
    [403, 'Your credits are exhausted', '', 'quota'],
    [429, "Quota exceeded for quota metric 'Generate Content API requests'", '', 'rate_limit'],
    [400, 'Unsupported model x', '', 'unknown_model'],
    [400, 'Model gpt-9 is not supported.', '', 'unknown_model'],
    [400, 'There are no healthy deployments for this model.', '', 'unknown_model'],
    [403, 'Model does not exist. Please check it carefully.', '', 'unknown_model'],
    [401, 'key not allowed to access model. This key can only access models=[x]', '401', 'unknown_model'],
    [403, 'team not allowed to access model. Tried to access y', '403', 'unknown_model'],
    [403, "You don't have access to the model with the specified model ID.", '', 'unknown_model'],
    [403, 'The model `x` is blocked at the project level.', 'model_permission_blocked_project', 'unknown_model'],
    [403, 'No access to model: openai/gpt-x', 'no_access', 'unknown_model'],
    [403, '该令牌无权访问模型 gpt-x', '', 'unknown_model'],
    [403, 'Permission denied on resource models/gemini-x (or it may not exist).', '', 'auth'],
    [404, "model 'command-r' was removed on September 15, 2025.", '', 'unknown_model'],
    [404, 'The given endpoint does not exist, please retry.', 'ENDPOINT_NOT_FOUND', 'unknown_model'],
    [404, 'No instance found for model x', '', 'unknown_model'],
    [400, 'No models are currently loaded.', '', 'unknown_model'],
    [404, 'Model use case details have not been submitted for this account.', '', 'unknown_model'],
    [403, 'Model access denied.', 'Model.AccessDenied', 'unknown_model'],
    [403, 'The current subscription plan does not yet include access to GLM-5', '1311', 'unknown_model'],
    [403, 'your current token plan not support model, MiniMax-M2.5-highspeed', '2061', 'unknown_model'],
    [400, 'Malformed publisher model `gemini-x` in `model`; expected `publisher/model`', '', 'unknown_model'],
    [400, 'Missing or invalid Authorization header.', 'INVALID_ARGUMENT', 'auth'],
    [403, 'Model disabled.', '', 'unknown_model'],
    [400, 'The model `x` requires terms acceptance.', 'model_terms_required', 'unknown_model'],
    [400, 'Model x is not supported for task conversational and provider y.', '', 'unknown_model'],
    [400, 'For this model the parameter temperature was removed', '', 'refused'],
    [403, 'this model requires a subscription, upgrade for access', '', 'quota'],
    [403, 'the token usage quota has been reached for your plan', 'token_quota_reached', 'quota'],
    [429, 'Your account has reached the set inference limit for the x model', 'SetLimitExceeded', 'quota'],
    [429, '您的 GLM Coding Plan 套餐已到期，暂无法使用', '1309', 'quota'],
    [400, 'Organization has been restricted.', 'organization_restricted', 'auth'],
    [400, 'Your API key has been revoked', 'invalid_request_error', 'auth'],
    [400, 'Account is not active', 'AccountInactive', 'auth'],
    [429, 'Your account is not active, please check your billing details', 'billing_not_active', 'quota'],
    [400, 'max_tokens must be at least 1, got -37.', '', 'context_too_long'],
    [400, 'max_tokens must be at least 1, got 0.', '', 'refused'],
    [500, 'Failed to parse input at pos 9: <tool_call> the model does not support tools', '', 'overloaded'],
    [500, 'error parsing tool call: raw=\'{"a": the prompt is too long\', err=invalid', '', 'overloaded'],
    [403, 'AI Gateway requires a valid credit card on file to service requests.', '', 'quota'],
    [400, 'max_completion_tokens: number of requested output tokens exceeds the limit 8192', '', 'refused'],
  ])('the kind of a failure with status %i, "%s" and code "%s" is %s', (status, message, code, kind) => {
    expect(failureOf(answered(status, { error: { message, code } })).kind).toBe(kind)
  })

  it.each([
    [
      "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
      'max_tokens',
    ],
    ["Unsupported value: 'temperature' does not support 0.2 with this model.", 'temperature'],
    ['Unrecognized request argument supplied: stream_options', 'stream_options'],
    ['Unknown parameter: stream_options', 'stream_options'],
    ['Invalid JSON payload received. Unknown name "stream_options": Cannot find field.', 'stream_options'],
    ["'messages.1' : property 'reasoning_content' is unsupported", 'reasoning_content'],
    ['messages.1.content.0.foo: Extra inputs are not permitted', 'messages.1.content.0.foo'],
    ['messages.0.role: Input should be a known value', 'messages.0.role'],
    ['tools[0].function: Field required', 'tools[0].function'],
    ['`temperature` is deprecated for this model.', 'temperature'],
    ['System role not supported', 'system'],
    ['Thinking mode does not support this tool_choice', 'tool_choice'],
    ["Unknown parameter: 'context_window'.", 'context_window'],
    ["Unsupported parameter: 'content_filter' is not supported with this model.", 'content_filter'],
    ['Unrecognized request argument supplied: permissions', 'permissions'],
    ['billing_id: Extra inputs are not permitted', 'billing_id'],
    ['Invalid JSON payload received. Unknown name "authentication": Cannot find field.', 'authentication'],
    ['Developer instruction is not enabled for models/gemma-3', 'system'],
    ['This model does not support image input', 'image'],
    ['image input is not supported - hint: you may need to provide the mmproj', 'image'],
    ['registry.ollama.ai/library/gemma does not support tools', 'tools'],
  ])('the kind of a failure with the text "%s" is a refusal of %s', (message, field) => {
    expect(failureOf(answered(400, { error: { message } }))).toMatchObject({
      kind: 'unsupported',
      field,
      retryable: false,
    })
  })

  it.each([
    ['Access token invalid or no longer valid', 'auth'],
    ['login fail: Please carry the API secret key in the request header', 'auth'],
    ['usage limit exceeded, 5-hour usage limit reached', 'rate_limit'],
    ['Failed to parse tool call: Unexpected end of content: an invalid API key', 'broken_off'],
    ['Unexpected token 200002 while expecting start token 200006', 'broken_off'],
    ['Model did not output valid tool call JSON.', 'broken_off'],
  ])('the kind of a failure inside a stream, "%s" is %s', (message, kind) =>
    expect(failureOf(new ReportedError({ error: { message } })).kind).toBe(kind),
  )

  it('the failure of a gateway that reached no server is retryable, also inside a stream', () => {
    const error = new ReportedError('upstream connect error or disconnect/reset before headers')
    expect(failureOf(error)).toMatchObject({ kind: 'overloaded', retryable: true })
  })

  it.each([
    ['stream_options', { stream_options: { _errors: ['Unrecognized key(s) in object'] } }],
    [
      'tools.0.strict',
      { tools: { _errors: [], 0: { _errors: [], strict: { _errors: ['Unrecognized key(s) in object'] } } } },
    ],
  ])('names the field %s whose problem Zod formats (Venice)', (field, problems) => {
    const details = { _errors: [], ...problems }
    expect(failureOf(answered(400, { error: 'Invalid request parameters', details }))).toMatchObject({
      kind: 'unsupported',
      field,
      detail: `HTTP 400: ${field}: Unrecognized key(s) in object`,
    })
  })

  it('names the field that the provider names separately', () => {
    const error = {
      message: 'Invalid value',
      type: 'invalid_request_error',
      param: 'reasoning_effort',
      code: 'invalid_value',
    }
    expect(failureOf(answered(400, { error }))).toMatchObject({ kind: 'unsupported', field: 'reasoning_effort' })
    const wrong = { message: "Invalid type for 'billing': expected a string.", param: 'billing' }
    expect(failureOf(answered(400, { error: wrong }))).toMatchObject({ kind: 'unsupported', field: 'billing' })
  })

  it.each<[string, unknown, boolean]>([
    ['overloaded', new ReportedError({ type: 'overloaded_error', message: 'Overloaded' }), true],
    ['rate_limit', new ReportedError({ code: 'rate_limit_exceeded', message: 'Slow down' }), true],
    ['overloaded', new ReportedError({ code: 'server_error', message: 'The server had an error' }), true],
    ['context_too_long', new ReportedError('the prompt is too long'), false],
    ['overloaded', new ReportedError({ error: { code: '1305', message: '该模型当前访问量过大，请您稍后再试' } }), true],
    ['rate_limit', new ReportedError({ error: { message: 'Concurrency limit exceeded' } }), true],
    ['overloaded', new ReportedError({ __type: 'InternalServerException', message: 'An error occurred' }), true],
    ['overloaded', new ReportedError({ error: { code: '1234', message: '网络错误，错误id：1，请联系客服。' } }), true],
    ['overloaded', new ReportedError({ error: { code: '1234', message: 'Network error, error id: 1' } }), true],
    ['rate_limit', new ReportedError({ error: { code: '1302', message: 'High concurrency usage of this API' } }), true],
    ['overloaded', new ReportedError({ message: 'The cluster is currently under high load' }), true],
    ['overloaded', new ReportedError({ message: 'peer closed connection without a complete body' }), true],
    ['unknown_model', new ModelError('Unknown model', 'unknown_model'), false],
    ['connection', new APICallError({ message: 'Cannot connect to API: x', url: '', requestBodyValues: {} }), true],
    ['unknown', new ModelError('The reply of the model is longer than 16 MiB'), false],
  ])('is %s for an error without a status', (kind, error, retryable) => {
    expect(failureOf(error)).toMatchObject({ kind, retryable, status: null, provider: 'compatible' })
  })

  it('is never retryable for contents that a gateway has blocked, whatever the status', () => {
    for (const status of [424, 500]) {
      const failure = failureOf(answered(status, { error: { message: 'Response blocked by a guardrail' } }))
      expect(failure).toMatchObject({ kind: 'content_filter', retryable: false })
    }
  })

  it('is retryable for these statuses only', () => {
    const again = [400, 401, 403, 404, 408, 409, 413, 422, 424, 429, 498, 499, 500, 501, 502, 503, 504, 529].filter(
      (status) => failureOf(answered(status, '')).retryable,
    )
    expect(again).toEqual([408, 409, 424, 429, 498, 499, 500, 502, 503, 504, 529])
  })
})

it.each<[Record<string, string>, unknown, number | null]>([
  [{ 'retry-after': '7' }, '', 7_000],
  [{ 'retry-after': '7', 'retry-after-ms': '1500' }, '', 1_500],
  [{ 'retry-after': 'Thu, 01 Jan 2026 00:00:09 GMT' }, '', 9_000],
  [{}, { error: { details: [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '23s' }] } }, 23_000],
  [{}, { error: { message: 'Rate limit reached. Please try again in 1.2s.' } }, 1_200],
  [{}, { error: { message: 'Please try again in 850ms.' } }, 850],
  [{}, { error: { message: 'Please try again in 2m3s.' } }, 123_000],
  [{}, { error: { message: 'Please try again later.' } }, null],
  [{}, { error: { message: 'Please wait before you go on. Try again in 2s.' } }, 2_000],
  [{}, { error: { message: 'Rate limit of 10 per 60s exceeded. Please wait 42 seconds before retrying.' } }, 42_000],
  [{ ratelimit: '"api";r=0;t=55' }, '', 55_000],
  [{ ratelimit: '"api";r=3;t=55' }, '', null],
  [{ ratelimit: 'limit=10, remaining=0, reset=50' }, '', 50_000],
  [{}, { error: { message: 'Please try again in 1h2m3s.' } }, 3_723_000],
  [{}, { error: { message: 'Try again in 3 days' } }, 259_200_000],
  [{}, { error: { message: 'Rate limit exceeded, retry in 5 min' } }, 300_000],
  [{}, { error: { message: 'Please try again in 2 minutes and 5 seconds' } }, 125_000],
  [{}, { error: { message: 'Your quota will reset after 18h14m33s.' } }, 65_673_000],
  [{}, { error: { message: 'Your limit resets in ~10s.' } }, 10_000],
  [{}, { error: { message: 'Out', retryAfter: 3 } }, 3_000],
  [{}, { error: { details: [{ '@type': 'google.rpc.QuotaFailure' }, { retryDelay: '41s' }] } }, 41_000],
  [{ 'retry-after': '1767225630' }, '', 30_000],
  [{ 'retry-after': 'soon' }, '', null],
  [{ 'retry-after': '9s' }, '', 9_000],
  [{ 'retry-after': '1m30s' }, '', 90_000],
  [{ 'retry-after': '5, 7' }, '', 5_000],
  [{ 'x-ratelimit-reset': '12s' }, '', 12_000],
  [{ 'ratelimit-reset': '40' }, '', 40_000],
  [{ 'x-ratelimit-reset': '1767225630' }, '', 30_000],
  [{ 'x-ratelimit-reset': '1767225630000' }, '', 30_000],
  [{ 'anthropic-ratelimit-tokens-reset': '2026-01-01T00:00:20Z' }, '', 20_000],
  [{ 'x-ratelimit-reset-requests': '1h', 'x-ratelimit-reset-tokens': '6s' }, '', null],
  [
    {
      'x-ratelimit-reset-requests': '1h',
      'x-ratelimit-reset-tokens': '450ms',
      'x-ratelimit-remaining-tokens': '0',
      'x-ratelimit-remaining-requests': '9',
    },
    '',
    450,
  ],
  [{}, { error: { metadata: { headers: { 'X-RateLimit-Reset': '1767225630000' } } } }, 30_000],
  [{}, { error: 'Model x is currently loading', estimated_time: 20.5 }, 20_500],
  [{}, { error: { code: 503, message: 'Loading model', type: 'unavailable_error' } }, 15_000],
  [{ 'retry-after': '3' }, { error: { message: 'The model is still loading' } }, 3_000],
  [{}, { error: 'Model x failed to load' }, null],
  [{}, { error: { type: 'usage_limit_reached', message: 'Reached', resets_in_seconds: 8464 } }, 8_464_000],
  [{}, { error: { type: 'usage_limit_reached', message: 'Reached', resets_at: 1767225630 } }, 30_000],
  [{}, { error: { message: 'Out', retry_after: 1767225630 } }, 30_000],
  [{}, { error: { message: 'Out', retry_after_ms: 1500 } }, 1_500],
  [{}, { error: { message: 'Out', details: [{ retryDelay: { seconds: 30 } }] } }, 30_000],
  [{}, { error: { message: 'Out', details: [{ metadata: { quotaResetDelay: '539.4ms' } }] } }, 539.4],
  [{}, { error: { message: 'Out', details: [{ metadata: { quotaResetTimeStamp: '2026-01-01T00:00:30Z' } }] } }, 30_000],
  [{}, { error: { message: 'Out', metadata: { headers: { 'Retry-After': '30' } } } }, 30_000],
  [{}, { error: { message: 'Rate limited, retry_after: 30' } }, 30_000],
  [{}, { error: { message: 'Try again in a minute' } }, 60_000],
  [{}, { error: { message: 'Please try again in a moment' } }, null],
  [{}, { error: { message: 'Wait 30 seconds and send it again' } }, 30_000],
  [{}, { error: { message: 'Limit reached. Try again at 2026-01-01T00:00:30Z' } }, 30_000],
  [{}, { error: { message: '请求过于频繁，请在 30 秒后重试' } }, 30_000],
  [{}, { error: { message: '请求过于频繁，30秒后重试' } }, 30_000],
  [{}, { error: { message: '请在1分钟30秒后重试' } }, 90_000],
  [{}, { error: { message: '요청 한도를 초과했습니다. 30초 후에 다시 시도해 주세요.' } }, 30_000],
  [{}, { error: { message: '1분 30초 후 다시 시도하세요' } }, 90_000],
  [{}, { error: { message: 'レート制限に達しました。30秒後に再試行してください' } }, 30_000],
  [{}, { error: { message: 'Limite atteinte. Veuillez réessayer dans 1 minute et 30 secondes.' } }, 90_000],
  [{}, { error: { message: 'Limit erreicht. Bitte versuchen Sie es in 30 Sekunden erneut.' } }, 30_000],
  [{}, { error: { message: 'Bitte versuchen Sie es in 2 Stunden und 5 Minuten erneut.' } }, 7_500_000],
  [{}, { error: { message: 'Bitte warten Sie 3 Tage.' } }, 259_200_000],
  [{}, { error: { message: 'Veuillez réessayer dans 2 jours.' } }, 172_800_000],
  [{}, { error: { message: 'Try again in 2 weeks' } }, 1_209_600_000],
  [{}, { error: { message: 'Try again in 10 milliseconds' } }, 10],
  [{}, { error: { message: 'Try again in 5 more seconds' } }, 5_000],
  [{}, { error: { message: 'Inténtelo de nuevo en 30 segundos' } }, 30_000],
  [{}, { error: { message: 'Limite atingido. Tente novamente em 30 segundos' } }, 30_000],
  [{}, { error: { message: '30秒以内に60回を超えました' } }, null],
  [{ 'x-ms-retry-after-ms': '700' }, '', 700],
  [{ 'x-rate-limit-reset': '30' }, '', 30_000],
  [{ 'retry-after': '-1' }, '', null],
])('headers %j and body %j ask for a delay of %s ms', (headers, body, wait) => {
  expect(failureOf(answered(429, body, headers)).retryAfter).toBe(wait)
})

it.each([
  [
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages).",
    8192,
  ],
  ['prompt is too long: 210000 tokens > 200000 maximum', 200_000],
  ['The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).', 1_048_576],
  ['the request exceeds the available context size (4096 tokens), try increasing it', 4_096],
  ["This endpoint's maximum context length is 131,072 tokens.", 131_072],
  ['Request body too large for gpt-x model. Max size: 8000 tokens.', 8_000],
  ['too many tokens: size limit exceeded by 7326 tokens. The limit for this model is 128000 tokens.', 128_000],
  ["Invalid 'input': array too long. Expected an array with maximum length 2048.", null],
  ['the prompt is too long', null],
])('"%s" states a context window of %s tokens', (message, tokens) => {
  expect(failureOf(answered(400, { error: { message } }))).toMatchObject({
    kind: 'context_too_long',
    contextWindow: tokens,
  })
})
