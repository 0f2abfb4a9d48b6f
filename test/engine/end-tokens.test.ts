import fc from 'fast-check'
import { describe, expect, it, test } from 'vitest'
import { newDraft, receive } from '../../src/executions/engine/run/draft.ts'
import { callerAt, createAgent } from '../support/api.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { chunk, DONE } from './chat-bytes.ts'
import { ended, followed, startLab } from './lab.ts'

/** Returns the text of an answer as events have it, and as the history has it. */
function textOf(...deltas: string[]): [published: string, stored: string] {
  const draft = newDraft(null)
  const published = deltas.map((delta) => receive(draft, { type: 'text-delta', id: 'text', delta }).text)
  published.push(receive(draft, { type: 'text-end', id: 'text' }).text)
  const stored = draft.pieces.map(({ part }) => (part.type === 'text' ? part.text : '')).join('')
  return [published.join(''), stored]
}

const both = (text: string) => [text, text]

describe('the end of an answer', () => {
  it.each([
    ['Hello!', '<|im_end|>'],
    ['Hello!\n', '<|eot_id|>'],
    ['Done.', '<|eot_id|><|eot_id|>\n<|eot_id|>'],
    ['Hello! ', '</s>'],
    ['This is a test.\n', '</end_of_turn>'],
    ['{"a": 1}', '<｜end▁of▁sentence｜>'],
    ['```ts\nlet a = 1\n```', '<|end|>'],
    ['Let me look:', '<|im_end|>\n'],
    ['', '<|endoftext|>'],
    ['a < b', '<|user|>'],
  ])('%j loses the end token %j of a server, in pieces of any size', (text, token) => {
    const whole = text + token
    expect(textOf(whole)).toEqual(both(text))
    expect(textOf(...whole)).toEqual(both(text))
    expect(textOf(text, token)).toEqual(both(text))
  })

  it.each([
    'ChatML ends a message with <|im_end|>',
    'The token is:\n\n<|im_end|>',
    'It is `</s>',
    'The end is "</s>',
    '`</s>` ends a text.</s>',
    '```\n<s>[INST] Hi [/INST] Hello</s>',
    '```\nHello<|im_end|>',
    'Now <s>10 €</s>',
    'Hello<|im_end|> and more',
    'Hello<|im_',
    'a <',
    'Hello<|im_end|><|im_start|>user\nHi',
  ])('%j stays as it is', (text) => {
    expect(textOf(text)).toEqual(both(text))
    expect(textOf(...text)).toEqual(both(text))
  })

  it('is withheld only while it may be an end token', () => {
    const draft = newDraft(null)
    const read = (delta: string) => receive(draft, { type: 'text-delta', id: 'text', delta }).text
    expect(['a <', '/', 'div>', ' b <b', '<', ' 1'].map(read)).toEqual(['a ', '', '</div>', ' b <b', '', '< 1'])
  })

  it('is the same for every division of the answer into pieces', () => {
    const word = fc.constantFrom('Hi', ' ', '<', '</', '|', '>', '<|im_end|>', '</s>', '<s>', '```', '\n', '😀', ':')
    fc.assert(
      fc.property(fc.array(word, { maxLength: 8 }), (words) => {
        const text = words.join('')
        const whole = textOf(text)
        expect(textOf(...words)).toEqual(whole)
        expect(textOf(...text.split(''))).toEqual(whole)
        expect(text.startsWith(whole[0])).toBe(true)
      }),
    )
  })
})

const lab = await use(startLab())
const call = callerAt(lab.server)

test('an end token of the server is in no event, result, chat or later request', async () => {
  const last = Buffer.from(chunk({ content: '<|user|>' }, 'stop') + DONE)
  lab.model.script({ tokens: ['Hello', '!', last], end: 'hang' }, { tokens: ['Bye', '.<|im', '_end|>'] })
  const id = await createAgent(lab.server)
  const first = (await call('POST', `/agents/${id}/execute`, { message: 'Hi' })).body
  const row = await ended(lab.engine, await lab.row(first.executionId))
  const { sessionId } = row
  const second = (await call('POST', `/agents/${id}/execute`, { message: 'Go', sessionId })).body
  const events = JSON.stringify(await followed(lab.engine, row))
  const { messages } = (await request(lab.server, 'GET', `/api/v1/chats/${row.chatId}/messages`)).body
  expect([first.result, second.result]).toEqual(['Hello!', 'Bye.'])
  expect(messages.map(({ content }: { content: string }) => content)).toEqual(['Hi', 'Hello!', 'Go', 'Bye.'])
  expect(events + JSON.stringify(lab.model.requests.at(-1)?.body.messages)).not.toContain('<|')
})
