import type { JSONSchema7 } from '@ai-sdk/provider'
import { expect, test } from 'vitest'
import { classifyModelError } from '../../src/executions/engine/models/model-errors.ts'
import type { ModelFailure } from '../../src/executions/engine/models/model-failures.ts'
import { createModelKnowledge } from '../../src/executions/engine/models/model-knowledge.ts'
import { createBreaker } from '../../src/executions/engine/run/breaker.ts'
import { type Change, isOfModel, isOfSession } from '../../src/executions/engine/run/change.ts'
import { warningOf } from '../../src/executions/engine/run/change-warnings.ts'
import { changesFor } from '../../src/executions/engine/run/rejections.ts'
import { changeBody, changePackagedBody } from '../../src/executions/engine/run/request-bodies.ts'
import { changePrompt, changeTools } from '../../src/executions/engine/run/request-changes.ts'
import type { call } from './tool-lab.ts'

const picture = (data: string) => ({
  type: 'file' as const,
  mediaType: 'image/png',
  filename: `${data}.png`,
  data: { type: 'data' as const, data: Buffer.from(data) },
})
const NOTHING = { question: 0, tools: [], settings: {}, hasOutput: false, fields: {}, isCompatible: true }
const offer = (name: string, properties: NonNullable<JSONSchema7['properties']> = {}) => ({
  type: 'function' as const,
  name,
  description: '',
  inputSchema: { type: 'object', properties } as JSONSchema7,
})

test('a file that the provider cannot read is left out in later turns, and others are sent', () => {
  const turn = (data: string) => ({ role: 'user' as const, content: [picture(data)] })
  const failure = { kind: 'refused', field: null, detail: 'HTTP 400: Could not process image' } as ModelFailure
  const [change] = changesFor(failure, { prompt: [turn('broken')], ...NOTHING }) as [Change]
  expect([isOfModel(change), isOfSession(change)]).toEqual([false, true])
  const [first, second] = changePrompt([turn('broken'), turn('good')], new Set([change]))
  expect(first?.content).toEqual([{ type: 'text', text: expect.stringContaining('broken.png') }])
  expect(second).toEqual(turn('good'))
})

test('reasoning with a wrong signature is left out of one run only', () => {
  const reasoning = { type: 'reasoning' as const, text: 'Hm.' }
  const prompt = [{ role: 'assistant' as const, content: [reasoning, { type: 'text' as const, text: 'Hi' }] }]
  const changeOf = (detail: string) =>
    changesFor({ kind: 'refused', field: null, detail } as ModelFailure, { prompt, ...NOTHING })[0] as Change
  const change = changeOf('HTTP 400: Invalid `signature` in `thinking` block')
  expect(isOfModel(change)).toBe(false)
  expect(changePrompt(prompt, new Set([change]))[0]?.content).toEqual([{ type: 'text', text: 'Hi' }])
  expect(isOfModel(changeOf("HTTP 400: 'messages.1' : property 'reasoning' is unsupported"))).toBe(true)
  for (const detail of [
    'HTTP 400: The encrypted content gAAA could not be verified.',
    'HTTP 400: messages.1.content.2: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.',
  ])
    expect(changeOf(detail)).toBe('reasoning:here')
})

test.each([
  'messages.1.content: Input should be a valid string',
  'messages[1]: unknown variant `thinking`, expected `text`',
  'Message content as a list is only supported for user messages.',
])('reasoning in the parts of a content is left out after "%s"', (detail) => {
  const providerOptions = { compatible: { field: 'content', content_parts: [{ type: 'thinking', thinking: 'Hm' }] } }
  const reasoning = { type: 'reasoning' as const, text: 'Hm', providerOptions }
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'one', input: {} }
  const failure = { kind: 'refused', field: null, detail: `HTTP 400: ${detail}` } as ModelFailure
  const changeOf = (parts: (typeof reasoning | typeof call)[]) =>
    changesFor(failure, { ...NOTHING, isCompatible: true, prompt: [{ role: 'assistant', content: parts }] })[0]
  expect(changeOf([reasoning, call])).toBe('reasoning')
  expect(changeOf([call])).not.toBe('reasoning')
})

test('tools that are refused beside another part of a request are left out of one run only', () => {
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'one', input: {} }
  const prompt = [{ role: 'assistant' as const, content: [call, { type: 'text' as const, text: 'Hi' }] }]
  const changes = new Set<Change>(['tools:here'])
  expect([isOfModel('tools:here'), isOfModel('tools:9'), isOfModel('tools')]).toEqual([false, true, true])
  expect(changePrompt(prompt, changes)[0]?.content).toEqual([{ type: 'text', text: 'Hi' }])
  expect(changeTools([offer('one')], changes)).toEqual([])
})

test.each([
  'The toolConfig field must be defined when using toolUse and toolResult content blocks.',
  "Bedrock doesn't support tool calling without `tools=` param specified.",
  'Requests which include `tool_use` or `tool_result` blocks must define tools',
])('earlier calls are left out of a run without tools after "%s"', (detail) => {
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'one', input: {} }
  const prompt = [{ role: 'assistant' as const, content: [call, { type: 'text' as const, text: 'Hi' }] }]
  const failure = { kind: 'refused', field: null, detail } as ModelFailure
  const [change] = changesFor(failure, { prompt, ...NOTHING }) as [Change]
  expect(isOfModel(change)).toBe(false)
  expect(changePrompt(prompt, new Set([change]))[0]?.content).toEqual([{ type: 'text', text: 'Hi' }])
})

/**
 * Returns the change after an HTTP error of a request with two pictures, two tools, an earlier call, a limit of the
 * answer and a schema for it.
 */
function changeAfter(status: number, message: string, isCompatible = true, param = ''): string | undefined {
  const responseBody = JSON.stringify({ error: { message, param } })
  const failure = classifyModelError(Object.assign(new Error(message), { statusCode: status, responseBody }))
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'one', input: {} }
  const prompt = [
    { role: 'assistant' as const, content: [call] },
    { role: 'user' as const, content: [picture('a'), picture('b')] },
  ]
  const tools = [offer('one'), offer('two', { any: {} }), offer('get-three')]
  const settings = { maxOutputTokens: 100_000, reasoningEffort: 'low' as const }
  return changesFor(failure, { ...NOTHING, isCompatible, prompt, question: 1, tools, settings, hasOutput: true })[0]
}

test.each([
  [500, 'image input is not supported - hint: you may need to provide the mmproj', 'files'],
  [500, 'failed to process inputs: this model is missing data required for image input', 'files'],
  [500, 'tools param requires --jinja flag', 'tools:flag'],
  [400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', 'tools:flag'],
  [500, 'Jinja Exception: System role not supported', 'system'],
  [500, 'The server had an error while processing your request', undefined],
  [
    400,
    "Tool call validation failed: parameters for tool two did not match schema: errors: ['q' is missing]",
    undefined,
  ],
  [500, "Expected 'content' to be a string or an array", 'empty_content'],
  [500, 'Value is not callable: null at row 1, column 72', 'empty_content'],
  [400, 'can only concatenate str (not "NoneType") to str', 'empty_content'],
  [400, "Message at index 3 with role 'tool' must have a name", 'tool_names'],
  [400, 'This model only supports single tool-calls at once!', 'single_calls'],
  [500, 'This model only supports single tool-calls at once!', 'single_calls'],
  [400, 'tool_use ids were found without tool_result blocks immediately after', undefined],
  [400, 'Failed to load image: illegal base64 data', expect.stringMatching(/^files:/)],
  [422, 'messages.1.reasoning_content: Extra inputs are not permitted', undefined],
  [400, 'think value "low" is not supported for this model', 'reasoningEffort'],
  [503, 'This model does not support tools', undefined],
  [400, 'Unknown parameter: tools', 'tools'],
  [400, 'Failed to fetch tools: Not yet implemented', 'tools'],
  [400, "Unsupported parameter: 'tools' is not supported with this model.", 'tools'],
  [400, 'Tool use with function calling is not supported together with web search', 'tools:here'],
  [400, 'Tools are not supported when audio is in the request', 'tools:here'],
  [400, 'The model `x` does not support `tools`', 'tools'],
  [404, 'No endpoints found that support tool use. To learn more, visit: https://x', 'tools'],
  [400, 'Function calling is not enabled for models/gemma-3-27b-it', 'tools'],
  [400, 'Tool names must be unique: duplicates are not allowed', 'tools:here'],
  [400, "tool_choice 'auto' is not supported", 'tools:here'],
  [400, 'Your plan does not allow calling this function', 'tools:here'],
  [400, 'Context caching does not support tools', 'tools:here'],
  [
    400,
    "Invalid 'tools': array too long. Expected an array with maximum length 1, but got one with length 2.",
    'tools:1',
  ],
  [400, 'You uploaded an unsupported image. Please make sure your image is valid.', expect.stringMatching(/^files:/)],
  [400, 'The image data you provided does not represent a valid image.', expect.stringMatching(/^files:/)],
  [
    400,
    'The provided URL does not appear to be valid. Ensure it is correctly formatted.',
    expect.stringMatching(/^files:/),
  ],
  [400, '图片输入格式/解析错误', expect.stringMatching(/^files:/)],
  [400, 'The model does not support tool use or function calling but tools have been specified.', 'tools'],
  [400, '当前模型暂不支持工具调用', 'tools'],
  [400, '该模型不支持FunctionCall功能，请更换模型', 'tools'],
  [400, '当前模型不支持SSE调用方式', 'stream'],
  [400, '模型不支持思考模式', 'reasoningEffort'],
  [400, 'max_tokens 超出范围，最大值为 8192', 'max_tokens:8192'],
  [400, 'このモデルはツールの呼び出しに対応していません。', 'tools'],
  [400, 'このモデルは画像入力をサポートしていません', 'files'],
  [400, '이 모델은 도구 호출을 지원하지 않습니다.', 'tools'],
  [400, '이미지 입력은 지원되지 않습니다.', 'files'],
  [400, 'Ce modèle ne prend pas en charge les appels de fonctions.', 'tools'],
  [400, 'Les images ne sont pas prises en charge par ce modèle.', 'files'],
  [400, 'Das Modell unterstützt keine Funktionsaufrufe', 'tools'],
  [400, 'Bilder werden von diesem Modell nicht unterstützt', 'files'],
  [400, 'messages[1]: data did not match any variant of untagged enum ChatCompletionRequestContent', 'files'],
  [400, 'Unsupported MIME type: image/gif', expect.stringMatching(/^files:/)],
  [
    400,
    "image.source.base64.media_type: Input should be 'image/jpeg' or 'image/png'",
    expect.stringMatching(/^files:/),
  ],
  [400, 'it has a mimeType parameter with value image/gif, which is not supported.', expect.stringMatching(/^files:/)],
  [400, 'Unsupported content type: input_file', 'files'],
  [400, 'Invalid API parameter, please check the documentation.', undefined],
  [400, 'Image does not match the provided media type image/png', expect.stringMatching(/^files:/)],
  [422, 'messages.1.content: str type expected', 'files'],
  [400, 'At most 1 image(s) may be provided in one request.', 'latest_files:1'],
  [400, 'Too many media: 2 > 1', 'latest_files:1'],
  [400, 'At most 0 image(s) may be provided in one request.', 'files'],
  [400, "This model doesn't support tool use in streaming mode.", 'stream'],
  [400, 'stream_options is only allowed when streaming', 'stream_options'],
  [400, "Unsupported value: 'low' is not supported with the 'x' model. Supported: 'high'", 'reasoningEffort'],
  [400, "Unsupported value: 'high' is not supported with the 'x' model. Supported values: 'low'", undefined],
  [400, "'messages' array must only contain objects with a 'content' field that is not empty", 'blank_content'],
  [400, 'json mode cannot be combined with tool/function calling', 'output'],
  [400, 'This model does not support response format `json_schema`', 'output'],
  [400, 'The provided JSON schema contains features not supported by xgrammar.', 'output:schema'],
  [400, "response_format: Unsupported JSON schema fields: {'minItems'}", 'output:schema'],
  [400, 'The compiled grammar is too large. Reduce the number of strict tools.', 'output:schema'],
  [
    400,
    "tools.function.parameters is not a valid moonshot flavored json schema: 'any': type is not defined",
    'schemas',
  ],
  [400, 'invalid message content type: <nil>', 'empty_content'],
  [422, 'messages.1.content: Input should be a valid string', 'empty_content'],
  [400, 'messages[2].content: invalid type: null, expected a string at line 1 column 300', 'empty_content'],
  [400, "'messages.2' : for 'role:assistant' ['messages.2.content' : value must be a string]", 'empty_content'],
  [400, 'tools[2].function.name: the name of a tool can only contain letters, digits and _', 'plain_names'],
  [400, "'NoneType' object is not iterable", 'empty_content'],
  [400, '<400> InternalError.Algo.InvalidParameter: The content field is a required field.', 'empty_content'],
  [422, 'messages[2]: missing field `content` at line 1 column 500', 'empty_content'],
  [400, 'Error rendering prompt: Cannot apply filter "string" to type: NullValue', 'empty_content'],
  [400, 'messages.2.content: String should have at least 1 character', 'blank_content'],
  [400, "the message at position 2 with role 'assistant' must not be empty", 'blank_content'],
  [400, 'messages: text content blocks must be non-empty', 'blank_content'],
  [400, 'messages: text content blocks must contain non-whitespace text', 'filled_content'],
  [400, 'The text field in the ContentBlock object at messages.2.content.0 is blank. Add text.', 'filled_content'],
  [400, "text content is not allowed when tool_calls are provided: 'messages[2].content'", 'calls_alone'],
  [422, "unknown field: parameter 'strict' is not a valid field.", 'output'],
  [400, 'Assistant message must have either content or tool_calls, but not both.', 'calls_alone'],
  [
    400,
    'The referenced name `#/$defs/A` in function_response.response does not match to a display_name in the function_response.parts.',
    'plain_references',
  ],
  [400, 'Invalid input: expected string, received array (messages[1].content)', 'files'],
  [402, 'This request requires more credits, or fewer max_tokens. You can only afford 7321.', 'afford:7321'],
  [402, 'This request requires more credits, or fewer max_tokens. You can only afford 73.', undefined],
  [400, 'thinking is enabled but reasoning_content is missing in assistant tool call message', 'add_reasoning'],
  [400, 'Function call is missing a thought_signature in functionCall parts.', 'signatures'],
  [400, 'Corrupted thought signature.', 'signatures:here'],
  [400, 'contents[2].parts[0].function_response.name: Name cannot be empty.', 'tool_names'],
  [400, 'function_declarations[1].parameters.properties: should be non-empty for OBJECT type', 'empty_inputs'],
  [400, 'Function tools with reasoning_effort are not supported for gpt-x in /v1/chat/completions.', 'no_effort'],
  [400, 'max_tokens is too large: 100000. This model supports at most 16384 completion tokens', 'max_tokens:16384'],
  [400, 'Invalid max_tokens value, the valid range of max_tokens is [1, 8192]', 'max_tokens:8192'],
  [400, '`max_tokens` must be less than or equal to `32768`', 'max_tokens:32768'],
  [400, 'max_tokens is too large for this model; maximum 8192', 'max_tokens:8192'],
  [400, 'max_tokens (100000) cannot exceed 16384', 'max_tokens:16384'],
  [400, 'max_output_tokens must be between 16 and 32000', 'max_tokens:32000'],
  [422, "messages.0.role: Input should be 'user' or 'assistant'", 'system'],
  [400, 'max_tokens (100000) exceeds the maximum allowed 8192', 'max_tokens:8192'],
  [
    400,
    "'max_tokens' is too large: 8000. This model's maximum context length is 4096 tokens and your request has 100 input tokens (8000 > 4096 - 100).",
    'answer:3994',
  ],
  [
    400,
    "This model's maximum context length is 8192 tokens. However, you requested 8300 tokens (200 in the messages, 8100 in the completion).",
    'answer:7988',
  ],
  [
    400,
    "This endpoint's maximum context length is 8192 tokens. However, you requested about 8400 tokens (100 of text input, 200 of tool input, 8100 in the output).",
    'answer:7886',
  ],
  [
    400,
    '`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 100 `inputs` tokens and 8100 `max_new_tokens`',
    'answer:3994',
  ],
  [400, 'input length and `max_tokens` exceed context limit: 150000 + 64000 > 200000', 'answer:47000'],
  [400, 'input length and `max_tokens` exceed context limit: 199000 + 64000 > 200000', undefined],
  [
    400,
    "This model's maximum context length is 32768 tokens. However, you requested 50000 output tokens and your prompt contains at least 1000 input tokens, for a total of at least 51000 tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
    'answer:31748',
  ],
  [400, 'max_tokens=50000 cannot be greater than max_model_len=max_total_tokens=32768.', 'max_tokens:32768'],
  [400, 'all elements in messages must have a non-empty content', 'blank_content'],
  [400, "'tools' parameter provided but model does not support tool use", 'tools'],
  [500, 'JSON schema conversion failed: Unrecognized schema: {"not":{}}', 'output:schema'],
  [
    400,
    "Failed to generate JSON. Please adjust your prompt. See 'failed_generation' for more details.",
    'output:schema',
  ],
  [400, '"minItems" is not supported in strict mode', 'schemas'],
  [400, 'Each message must have at least one content element.', 'blank_content'],
  [400, 'invalid params, chat content is empty (2013)', 'blank_content'],
  [400, 'Unsupported MIME type: application/octet-stream', 'files'],
  [400, 'model requires more system memory (12.3 GiB) than is available (8.0 GiB)', undefined],
])('a rejection with %i and "%s" changes the next request: %s', (status, message, change) => {
  expect(changeAfter(status, message)).toEqual(change)
})

test.each<[string, string, string?]>([
  ['Invalid JSON payload. Unknown name "id" at \'contents[1].parts[0].function_call\'', 'parts:id'],
  ['function_declarations[1].parameters.properties: should be non-empty for OBJECT type', 'older_parameters'],
  ['thinking is enabled but reasoning_content is missing in assistant tool call message at index 2', 'add_reasoning'],
  ['The `content[].thinking` in the thinking mode must be passed back to the API.', 'add_reasoning'],
  ['The maximum tokens you requested exceeds the model limit of 4096.', 'max_tokens:4096'],
  ['Instructions are required', 'instructions'],
  ["Invalid 'input[2].id': string too long. Expected a string with maximum length 64", 'item_ids', 'input[2].id'],
  ['Encrypted content is not supported with this model.', 'omit:include'],
  ['reasoning.encrypted_content is not a supported include value', 'omit:include'],
  ['Invalid service_tier argument', 'omit:service_tier'],
  ['include.0: Extra inputs are not permitted', 'omit:include'],
  ['The long context beta is not yet available for this subscription.', 'omit:anthropic-beta'],
  [
    'It has a maxOutputTokens value of 100000 but the range is from 1 (inclusive) to 8193 (exclusive)',
    'max_tokens:8192',
  ],
  ['max_output_tokens must be in the range of [1, 8193)', 'max_tokens:8192'],
  ["Invalid schema for response_format 'answer': got 'type: \"array\"'.", 'output:schema', 'text.format.schema'],
  ["output_config.format.schema: 'additionalProperties' must be explicitly set to false", 'output:schema'],
  ['Argument not supported on this model: store', 'omit:store'],
  ['thinking.type.enabled is not supported. Use adaptive and output_config.effort.', 'reasoningEffort'],
  ['messages.0.content: Input should be a valid string', 'plain_content'],
  [
    "240 validation errors: {'loc': ('body', 'input', 'str'), 'msg': 'Input should be a valid string', 'input': []}",
    'plain_content',
  ],
  ["Input should be 'text' [type=literal_error, input_value='output_text', input_type=str]", 'plain_content'],
  ['anthropic-beta: unsupported beta value `fine-grained-tool-streaming-2025-05-14`', 'omit:anthropic-beta'],
  ['Your organization must be verified to generate reasoning summaries.', 'omit:summary', 'reasoning.summary'],
])('a rejection of a package\'s request with "%s" changes the next one: %s', (message, change, param) => {
  expect(changeAfter(400, message, false, param)).toBe(change)
})

test.each([
  'Forced function calling (mode = ANY) is only supported for newer models',
  "Invalid value at 'tool_config.function_calling_config.mode'",
])('a refused choice of tools is left out rather than the tools after "%s"', (detail) => {
  const failure = { kind: 'refused', field: null, detail, status: 400 } as ModelFailure
  const settings = { toolChoice: 'required' as const }
  const request = { ...NOTHING, isCompatible: false, prompt: [], tools: [offer('one')], settings }
  expect(changesFor(failure, request)[0]).toBe('toolChoice')
})

test.each([
  ['Input should be a valid string', 'pictures_apart'],
  ['Invalid input', 'pictures_apart'],
  ["This model doesn't support the image field for user messages. Remove image and try again.", 'pictures_apart'],
  ['Could not process image', expect.stringMatching(/^files:/)],
])('a rejection of a picture in a result with "%s" changes the next request: %s', (message, change) => {
  const detail = `HTTP 400: ${message}`
  const failure = { kind: 'refused', field: null, detail, status: 400 } as ModelFailure
  const output = { type: 'content' as const, value: [picture('a')] }
  const content = [{ type: 'tool-result' as const, toolCallId: 'c', toolName: 'one', output }]
  const prompt = [{ role: 'tool' as const, content }]
  expect(changesFor(failure, { ...NOTHING, isCompatible: false, prompt })[0]).toEqual(change)
})

test('a request of more bytes than Gemini takes, which refuses it with 400, leaves out files', () => {
  const detail = 'HTTP 400: Request payload size exceeds the limit: 20971520 bytes.'
  const failure = { kind: 'context_too_long', field: null, detail, status: 400, contextWindow: null } as ModelFailure
  const prompt = [{ role: 'user' as const, content: [picture('a')] }]
  expect(changesFor(failure, { ...NOTHING, isCompatible: false, prompt })).toEqual([
    expect.stringMatching(/^large_files:/),
  ])
})

test.each([
  ['half of the files', ['a', 'b', 'c'], 0, 'text,file,file'],
  ['all of them then', ['a', 'b', 'c'], 1, 'text,text,text'],
  ['a single one', ['a'], 0, 'text'],
])('a request that is too large for a server leaves out %s', (_, names, step, types) => {
  const prompt = [{ role: 'user' as const, content: names.map(picture) }]
  const failure = { kind: 'context_too_long', field: null, detail: 'HTTP 413', status: 413, contextWindow: null }
  const change = changesFor(failure as ModelFailure, { ...NOTHING, prompt })[step] as Change
  const [message] = changePrompt(prompt, new Set([change]))
  const parts = (message?.content ?? []) as { type: string }[]
  expect(parts.map(({ type }) => type).join()).toBe(types)
})

test('tools stay where only several calls at once are refused, which the settings demand', () => {
  const failure = { kind: 'unsupported', field: 'tools', detail: 'HTTP 400: Parallel tool calls are not supported' }
  const asked = { ...NOTHING, prompt: [], tools: [offer('one')], settings: { parallelToolCalls: true } }
  expect(changesFor(failure as ModelFailure, asked)).toEqual(['parallelToolCalls'])
})

test('a model with limits gets the latest files and the first tools with the plainest schemas', () => {
  const prompt = [{ role: 'user' as const, content: [picture('a'), picture('b')] }]
  const [message] = changePrompt(prompt, new Set(['latest_files:1']))
  expect(message?.content).toEqual([{ type: 'text', text: expect.stringContaining('a.png') }, picture('b')])
  const mixed: JSONSchema7 = { anyOf: [{ type: 'null' }, { type: 'integer', minimum: 1 }] }
  const tools = [offer('one', { any: {}, mixed, list: { type: 'array', items: {} } }), offer('two')]
  const [plain, ...others] = changeTools(tools, new Set(['schemas', 'tools:1']))
  expect(others).toEqual([])
  expect(plain?.inputSchema.properties).toEqual({
    any: { type: 'string' },
    mixed: { type: 'integer' },
    list: { type: 'array', items: { type: 'string' } },
  })
})

test('tools have underscores for hyphens where it is demanded, unless a name is taken', () => {
  const names = changeTools([offer('a-b'), offer('c-d'), offer('c_d')], new Set(['plain_names'])).map(
    ({ name }) => name,
  )
  expect(names).toEqual(['a_b', 'c-d', 'c_d'])
  const call = { type: 'tool-call' as const, toolCallId: 'c', toolName: 'a-b', input: {} }
  const [message] = changePrompt([{ role: 'assistant', content: [call] }], new Set(['plain_names']))
  expect(message?.content).toEqual([{ ...call, toolName: 'a_b' }])
})

test('a model that does not reason beside tools stops reasoning only where tools are offered', () => {
  const changes = new Set<Change>(['no_effort'])
  const body = { messages: [], reasoning_effort: 'low', tools: [{ type: 'function' }] }
  expect(changeBody(body, {}, changes)).toMatchObject({ reasoning_effort: 'none' })
  expect(changeBody({ ...body, tools: [] }, {}, changes)).toMatchObject({ reasoning_effort: 'low' })
  expect(isOfModel('no_effort')).toBe(true)
  expect(warningOf('no_effort', { model: 'a/b', settings: {}, hasFiles: false })?.text).toContain('a/b does not reason')
})

test('what a server without a flag refused is not remembered, and its warning names the flag', () => {
  expect(isOfModel('tools:flag')).toBe(false)
  expect(changeTools([offer('one')], new Set(['tools:flag']))).toEqual([])
  const warning = warningOf('tools:flag', { model: 'a/b', settings: {}, hasFiles: false })
  expect(warning).toMatchObject({ code: 'tool_missing', text: expect.stringContaining('--enable-auto-tool-choice') })
})

test('no more than 200 lessons of a model are kept, since callers choose the values of settings', () => {
  const knowledge = createModelKnowledge({ now: () => new Date(0) })
  for (let at = 0; at < 300; at++) knowledge.learn('one a/b', { changes: [`seed ${at}`] })
  const { changes } = knowledge.of('one a/b')
  expect([changes.size, changes.has('seed 299'), changes.has('seed 99')]).toEqual([200, true, false])
})

test('lessons are forgotten if the providers of their organization change', () => {
  const knowledge = createModelKnowledge({ now: () => new Date(0) })
  const learn = () => {
    for (const key of ['one a/b', 'two a/b']) knowledge.learn(key, { changes: ['system'] })
  }
  const left = () => ['one a/b', 'two a/b'].filter((key) => knowledge.of(key).changes.size)
  learn()
  knowledge.forget(['one'])
  expect(left()).toEqual(['two a/b'])
  learn()
  knowledge.forget(null)
  expect(left()).toEqual([])
})

test('a provider that failed five times in 30 s is skipped for 30 s', () => {
  let now = 0
  const breaker = createBreaker({ now: () => new Date(now) })
  for (let failures = 0; failures < 4; failures++) breaker.failed('a')
  expect(breaker.isOpen('a')).toBe(false)
  now = 29_000
  breaker.failed('a')
  expect([breaker.isOpen('a'), breaker.isOpen('b')]).toEqual([true, false])
  now = 59_001
  expect(breaker.isOpen('a')).toBe(false)
  for (let failures = 0; failures < 4; failures++) breaker.failed('a')
  now = 95_000
  breaker.failed('a')
  expect(breaker.isOpen('a')).toBe(false)
})

test("Google's older field for the inputs of tools has no empty lists of properties", () => {
  const schema = { type: 'object', properties: { any: {}, inner: { type: 'object', properties: {} } } }
  const functionDeclarations = [
    { name: 'one', parametersJsonSchema: schema },
    { name: 'two', parametersJsonSchema: { type: 'object', properties: {} } },
  ]
  const tools = [{ googleSearch: {} }, { functionDeclarations }]
  const properties = { any: { type: 'string' }, inner: { type: 'object' } }
  expect(changePackagedBody({ tools }, new Set(['older_parameters'])).tools).toEqual([
    { googleSearch: {} },
    { functionDeclarations: [{ name: 'one', parameters: { type: 'object', properties } }, { name: 'two' }] },
  ])
})

test.each<[change: Change, before: object, after: object]>([
  [
    'add_reasoning',
    { messages: [{ role: 'assistant', content: 'Hi' }] },
    { messages: [{ role: 'assistant', content: 'Hi', reasoning_content: ' ' }] },
  ],
  [
    'blank_content',
    { messages: [{ role: 'assistant', content: null, tool_calls: [] }] },
    { messages: [{ role: 'assistant', content: ' ', tool_calls: [] }] },
  ],
  [
    'filled_content',
    { messages: [{ role: 'assistant', content: null, tool_calls: [] }] },
    { messages: [{ role: 'assistant', content: '(no text)', tool_calls: [] }] },
  ],
  [
    'empty_content',
    { messages: [{ role: 'assistant', content: null, tool_calls: [] }] },
    { messages: [{ role: 'assistant', content: '', tool_calls: [] }] },
  ],
  [
    'signatures',
    { messages: [{ tool_calls: [{ id: 'a' }, { id: 'b', extra_content: 'B' }] }] },
    {
      messages: [
        {
          tool_calls: [
            { id: 'a', extra_content: { google: { thought_signature: 'skip_thought_signature_validator' } } },
            { id: 'b', extra_content: 'B' },
          ],
        },
      ],
    },
  ],
  [
    'signatures:here',
    { messages: [{ tool_calls: [{ id: 'a', extra_content: 'A' }] }] },
    {
      messages: [
        {
          tool_calls: [
            { id: 'a', extra_content: { google: { thought_signature: 'skip_thought_signature_validator' } } },
          ],
        },
      ],
    },
  ],
  [
    'tool_names',
    { messages: [{ tool_calls: [{ id: 'a', function: { name: 'one' } }] }, { role: 'tool', tool_call_id: 'a' }] },
    {
      messages: [
        { tool_calls: [{ id: 'a', function: { name: 'one' } }] },
        { role: 'tool', tool_call_id: 'a', name: 'one' },
      ],
    },
  ],
  [
    'single_calls',
    {
      messages: [
        { role: 'assistant', content: 'x', tool_calls: [{ id: 'a' }, { id: 'b' }] },
        ...['a', 'b'].map((id) => ({ role: 'tool', tool_call_id: id })),
      ],
    },
    {
      messages: [
        { role: 'assistant', content: 'x', tool_calls: [{ id: 'a' }] },
        { role: 'tool', tool_call_id: 'a' },
        { role: 'assistant', content: null, tool_calls: [{ id: 'b' }] },
        { role: 'tool', tool_call_id: 'b' },
      ],
    },
  ],
  [
    'empty_inputs',
    { messages: [], tools: [{ type: 'function', function: { name: 'one', parameters: { properties: {} } } }] },
    { messages: [], tools: [{ type: 'function', function: { name: 'one' } }] },
  ],
  ['answer:50', { messages: [], max_tokens: 100 }, { messages: [], max_tokens: 50 }],
  ['afford:50', { messages: [] }, { messages: [], max_tokens: 50 }],
  ['afford:50', { messages: [], max_tokens: 40 }, { messages: [], max_tokens: 40 }],
  [
    'calls_alone',
    { messages: [{ content: 'Hi' }, { content: 'Hi', tool_calls: [{ id: 'a' }] }] },
    { messages: [{ content: 'Hi' }, { content: '', tool_calls: [{ id: 'a' }] }] },
  ],
  [
    'plain_references',
    { messages: [{ role: 'tool', content: '{"$ref":"#/$defs/A"}' }] },
    { messages: [{ role: 'tool', content: '{"ref":"#/$defs/A"}' }] },
  ],
])('the change %s of a request to a compatible server reaches its body', (change, before, after) => {
  expect(JSON.parse(JSON.stringify(changeBody({ ...before }, {}, new Set([change]))))).toEqual(after)
})

test.each<[change: Change | Change[], before: object, after: object]>([
  [
    'signatures',
    { contents: [{ parts: [{ functionCall: {} }, { functionCall: {}, thoughtSignature: 'S' }, { text: 'x' }] }] },
    {
      contents: [
        {
          parts: [
            { functionCall: {}, thoughtSignature: 'skip_thought_signature_validator' },
            { functionCall: {}, thoughtSignature: 'S' },
            { text: 'x' },
          ],
        },
      ],
    },
  ],
  [
    'add_reasoning',
    { messages: [{ role: 'assistant', content: [{ type: 'tool_use' }] }] },
    {
      messages: [
        { role: 'assistant', content: [{ type: 'thinking', thinking: '', signature: '' }, { type: 'tool_use' }] },
      ],
    },
  ],
  [
    'signatures:here',
    {
      contents: [
        {
          parts: [
            { functionCall: {}, thoughtSignature: 'S' },
            { text: 'x', thoughtSignature: 'T' },
          ],
        },
      ],
    },
    {
      contents: [
        { parts: [{ functionCall: {}, thoughtSignature: 'skip_thought_signature_validator' }, { text: 'x' }] },
      ],
    },
  ],
  ['answer:50', { max_output_tokens: 100 }, { max_output_tokens: 50 }],
  [
    'parts:thought_signature',
    { contents: [{ role: 'model', parts: [{ functionCall: { name: 'one', id: 'a' }, thoughtSignature: 'S' }] }] },
    { contents: [{ role: 'model', parts: [{ functionCall: { name: 'one', id: 'a' } }] }] },
  ],
  [
    'parts:id',
    { contents: [{ role: 'model', parts: [{ functionCall: { name: 'one', id: 'a' }, thoughtSignature: 'S' }] }] },
    { contents: [{ role: 'model', parts: [{ functionCall: { name: 'one' }, thoughtSignature: 'S' }] }] },
  ],
  [
    'plain_content',
    {
      input: [
        {
          role: 'assistant',
          content: [
            { type: 'output_text', text: 'a' },
            { type: 'output_text', text: 'b' },
          ],
        },
        { content: [{ type: 'input_image' }] },
      ],
    },
    { input: [{ role: 'assistant', content: 'a\n\nb' }, { content: [{ type: 'input_image' }] }] },
  ],
  [
    'item_ids',
    {
      input: [
        { type: 'reasoning', id: 'rs_1', encrypted_content: 'E' },
        { type: 'function_call', id: 'fc_1', name: 'a' },
      ],
    },
    {
      input: [
        { type: 'reasoning', encrypted_content: 'E' },
        { type: 'function_call', name: 'a' },
      ],
    },
  ],
  [
    'instructions',
    { input: [{ role: 'developer', content: 'Be kind.' }, { role: 'user' }] },
    { input: [{ role: 'user' }], instructions: 'Be kind.' },
  ],
  [
    ['item_ids', 'instructions', 'plain_content'],
    {
      input: [
        { role: 'developer', content: 'Be kind.' },
        { role: 'user', content: [{ text: 'Hi' }] },
        { type: 'function_call', id: 'fc_1' },
      ],
    },
    { instructions: 'Be kind.', input: [{ role: 'user', content: 'Hi' }, { type: 'function_call' }] },
  ],
  [
    ['signatures', 'parts:id'],
    { contents: [{ role: 'model', parts: [{ functionCall: { id: 'a', name: 'b' } }] }] },
    {
      contents: [
        {
          role: 'model',
          parts: [{ functionCall: { name: 'b' }, thoughtSignature: 'skip_thought_signature_validator' }],
        },
      ],
    },
  ],
])("the change %s of a package's request reaches its body", (change, before, after) => {
  expect(changePackagedBody(before as never, new Set([change].flat()))).toEqual(after)
})
