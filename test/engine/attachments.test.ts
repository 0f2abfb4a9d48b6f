import { beforeAll, describe, expect, test } from 'vitest'
import { decodeFile } from '../../src/lib/file-type.ts'
import { callerAt, createAgent } from '../support/api.ts'
import { startByteServer } from '../support/byte-server.ts'
import { upload } from '../support/multipart.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { ended, startLab } from './lab.ts'

let spaceId = ''
// Attachments of messages (contract-2.md section 2.6).
const bytes = await use(startByteServer())
const { origin } = bytes
const lab = await use(
  startLab({
    ANTHROPIC_API_KEY: 'key-a',
    OPENAI_API_KEY: 'key-o',
    GOOGLE_GENERATIVE_AI_API_KEY: 'key-g',
    ANTHROPIC_BASE_URL: origin,
    OPENAI_RESPONSES_BASE_URL: `${origin}/v1`,
    GOOGLE_BASE_URL: origin,
  }),
)
beforeAll(async () => {
  spaceId = (await call('POST', '/spaces', { name: 'Plans' })).body.space.id
})

const call = callerAt(lab.server)

const PDF = Buffer.from('%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n')
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
)
const ZIP = Buffer.from('504b0304140000000000', 'hex')

const media = async (name: string, content: string | Uint8Array): Promise<string> =>
  (await upload(lab.server, content, { name })).body.id
const file = (path: string, content: Uint8Array, to = spaceId) =>
  call('PUT', `/spaces/${to}/files/content?path=${path}`, {
    content: Buffer.from(content).toString('base64'),
    encoding: 'base64',
  })

let count = 0
/** Runs a message to its end: the execution, and the bodies that reached the model. */
async function run(fields: object, model = `compatible/reader-${++count}`) {
  const before = lab.model.requests.length
  const agentId = await createAgent(lab.server, { model })
  const body = { message: 'Read this', spaceId, background: true, ...fields }
  const accepted = await call('POST', `/agents/${agentId}/execute`, body)
  expect(accepted.status, JSON.stringify(accepted.body)).toBe(200)
  await ended(lab.engine, await lab.row(accepted.body.executionId))
  const { execution } = (await call('GET', `/executions/${accepted.body.executionId}`)).body
  return { agentId, execution, requests: lab.model.requests.slice(before).map((each) => each.body) }
}

/** The text of the last message of a request. */
const textIn = (body: { messages: readonly { content: unknown }[] }): string => {
  const content = body.messages.at(-1)?.content
  return typeof content === 'string' ? content : JSON.stringify(content)
}

describe('a text file', () => {
  test.each([
    ['notes.txt', 'Buy milk'],
    ['plan.md', '# Plan'],
    ['data.csv', 'a;b\n1;2'],
    ['data.json', '{"a": 1}'],
    ['page.html', '<p>Hello</p>'],
    ['feed.xml', '<?xml version="1.0"?><feed/>'],
    ['main.ts', 'const a = 1'],
    ['drawing.svg', '<svg xmlns="http://www.w3.org/2000/svg"/>'],
    ['excel.txt', Buffer.from('\ufeffa\tb', 'utf16le')],
  ])('%s is put into the prompt, uploaded or in the space', async (name, content) => {
    const given = Buffer.from(content as string)
    await file(name, given)
    const uploaded = await run({ mediaIds: [await media(name, given)] })
    const stored = await run({ files: [name] })
    const expected = typeof content === 'string' ? content : 'a\tb'
    for (const { requests, execution } of [uploaded, stored]) {
      expect(textIn(requests[0]!)).toContain(`<attached-file name="${name}">\n${expected}\n</attached-file>`)
      expect(execution.warnings).toEqual([])
    }
    expect(stored.execution).toMatchObject({ files: [name], mediaIds: [] })
  })

  test('in windows-1252 is read with a warning, and one in another old encoding is named', async () => {
    const western = await media('cities.csv', Buffer.from('1;Zürich\n2;Málaga', 'latin1'))
    const cyrillic = await media('letter.txt', Buffer.from('cff0e8e2e5f2', 'hex'))
    const { requests, execution } = await run({ mediaIds: [western, cyrillic] })
    expect(textIn(requests[0]!)).toContain('2;Málaga')
    expect(textIn(requests[0]!)).toContain('[Attached file: letter.txt')
    expect(execution.warnings).toEqual([
      { code: 'attachment_not_read', text: expect.stringMatching(/cities\.csv .* was read as windows-1252/) },
      { code: 'attachment_not_read', text: expect.stringMatching(/letter\.txt .* no text in UTF-8/) },
    ])
  })

  test('is cut at 200 KB of a message together, with a mark and a warning', async () => {
    const mediaIds = [await media('a.txt', 'a'.repeat(150 * 1024)), await media('b.txt', 'b'.repeat(100 * 1024))]
    const { requests, execution } = await run({ mediaIds })
    const text = textIn(requests[0]!)
    expect(text).toContain(`${'b'.repeat(50 * 1024)}\n[Cut off here: 51200 of 102400 bytes]`)
    expect(text).not.toContain('b'.repeat(50 * 1024 + 1))
    expect(execution.warnings).toEqual([{ code: 'attachment_not_read', text: expect.stringContaining('b.txt') }])
  })

  test('stays attached in later turns, without another warning', async () => {
    await file('later.txt', Buffer.from('Remember me'))
    const { agentId, execution } = await run({ files: ['later.txt'], mediaIds: [await media('x.zip', ZIP)] })
    const { body } = await call('POST', `/agents/${agentId}/execute`, { message: 'And?', chatId: execution.chatId })
    expect(JSON.stringify(lab.model.requests.at(-1)!.body)).toContain('Remember me')
    expect(body.warnings).toEqual([])
    await call('DELETE', `/spaces/${spaceId}/files/content?path=later.txt`)
    await call('POST', `/agents/${agentId}/execute`, { message: 'Now?', chatId: execution.chatId })
    expect(JSON.stringify(lab.model.requests.at(-1)!.body)).toContain('later.txt, which no longer exists')
  })

  test('is attached again when its run is repeated', async () => {
    await file('again.txt', Buffer.from('Twice'))
    const { execution } = await run({ files: ['again.txt'] })
    await call('POST', `/executions/${execution.id}/rerun`)
    expect(textIn(lab.model.requests.at(-1)!.body)).toContain('Twice')
  })
})

describe('other files', () => {
  test('are named, with a warning', async () => {
    await file('x.zip', ZIP)
    const { requests, execution } = await run({ mediaIds: [await media('y.zip', ZIP)], files: ['x.zip'] })
    expect(textIn(requests[0]!)).toContain('[Attached file: y.zip (application/zip)]')
    expect(execution.warnings).toMatchObject([
      { code: 'attachment_not_read', text: expect.stringContaining('y.zip') },
      { code: 'attachment_not_read', text: expect.stringContaining('x.zip') },
    ])
  })

  test('other files that are pictures in the space are shown to the model', async () => {
    await file('dot.png', PNG)
    const { requests } = await run({ files: ['dot.png'] })
    expect(requests[0]!.messages.at(-1)?.content).toMatchObject([
      { type: 'text' },
      { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG.toString('base64')}` } },
    ])
  })

  test('other files that are PDF are named for compatible servers, and pictures are sent', async () => {
    const mediaIds = [await media('a.pdf', PDF), await media('dot.png', PNG)]
    const { requests, execution } = await run({ mediaIds })
    const sent = JSON.stringify(requests[0]!.messages)
    expect(sent).toContain('a.pdf')
    expect(sent).not.toContain('application/pdf;base64')
    expect(sent).toContain('image/png;base64')
    expect(execution.warnings).toMatchObject([{ code: 'attachment_not_read', text: expect.stringContaining('PDF') }])
  })

  test('are not seen by the offline model, which says so', async () => {
    const { execution } = await run({ mediaIds: [await media('a.pdf', PDF)] }, 'offline/echo')
    expect(execution.result).toContain('a.pdf')
    expect(execution.warnings).toMatchObject([{ code: 'attachment_not_read' }])
  })
})

const data = PDF.toString('base64')
test.each([
  [
    'anthropic/claude-x',
    (body: any) => body.messages.at(-1).content[1],
    { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data } },
  ],
  [
    'openai/gpt-x',
    (body: any) => body.input.at(-1).content[1],
    { type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;base64,${data}` },
  ],
  [
    'google/gemini-x',
    (body: any) => body.contents.at(-1).parts[1],
    { inlineData: { mimeType: 'application/pdf', data } },
  ],
])('%s is sent a PDF in the form of its API', async (model, partOf, expected) => {
  const before = bytes.requests.length
  bytes.script({ status: 401, headers: {}, body: '{}' })
  await run({ mediaIds: [await media('a.pdf', PDF)] }, model)
  expect(partOf(bytes.requests[before]!.body)).toMatchObject(expected)
})

describe('files of a space', () => {
  test('files of a space that do not exist, or lie in another space, are refused', async () => {
    const other = (await call('POST', '/spaces', { name: 'Other' })).body.space.id
    await file('secret.txt', Buffer.from('x'), other)
    for (const path of ['none.txt', 'secret.txt']) {
      const fields = { message: 'Read', spaceId, files: [path] }
      const { status, body } = await call('POST', `/agents/${lab.agentId}/execute`, fields)
      expect([status, body.message]).toEqual([404, 'File not found'])
    }
    const bad = await call('POST', `/agents/${lab.agentId}/execute`, { message: 'Read', spaceId, files: ['../x'] })
    expect([bad.status, bad.body.message]).toEqual([400, 'Invalid path'])
  })

  test('need the scope spaces:read', async () => {
    await file('a.txt', Buffer.from('x'))
    const { token } = await lab.server.member({ scopes: ['agents:execute'] })
    const body = { message: 'Read', spaceId, files: ['a.txt'] }
    const answer = await request(lab.server, 'POST', `/api/v1/agents/${lab.agentId}/execute`, { body, token })
    expect([answer.status, answer.body.code]).toEqual([403, 'insufficient_scope'])
  })
})

test.each([
  ['é', 'é'],
  [Buffer.from([0xc3, 0xa9, 0xc3]), 'é'],
  [Buffer.from([0xff, 0xfe, 0x41, 0]), 'A'],
  [Buffer.from([0, 1]), null],
  [Buffer.from([0xe9, 0x20]), 'é '],
])('%j is decoded as text, unless it is none', (given, expected) => {
  expect(decodeFile(Buffer.from(given as string))?.text ?? null).toBe(expected)
})

test('an attachment is shown at its own message, and not at the history that a client gave', async () => {
  const mediaId = await media('notes.txt', 'Buy milk')
  const given = [{ message: 'Before', answer: 'An answer', toolCalls: [] }]
  const row = await lab.run({
    message: 'Read this',
    mediaIds: [mediaId],
    conversation: { spaceId: lab.spaceId, given },
  })
  await ended(lab.engine, row)
  const { messages } = (await call('GET', `/chats/${row.chatId}/messages`)).body
  const contents = messages.map(({ content, attachments }: { content: string; attachments: { name: string }[] }) => [
    content,
    attachments.map(({ name }) => name),
  ])
  expect(contents.slice(0, 3)).toEqual([
    ['Before', []],
    ['An answer', []],
    ['Read this', ['notes.txt']],
  ])
})
