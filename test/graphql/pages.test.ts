import { describe, expect, test } from 'vitest'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { fill } from './many.ts'
import { graphql, post } from './support.ts'

const server = await use(startServer())
const member = await server.member({ organization: 'Many' })
const hubs = await fill(server, member)

type Page = { ids: string[]; has: [previous: boolean, next: boolean]; cursors: string[] }

/** A list and the query for it. */
const lists: Record<string, { wrap: (list: string) => string; id: string }> = {
  'a list at the root': { wrap: (list) => `{ executions${list} }`, id: 'id' },
  'a list of a row': { wrap: (list) => `{ agent(id: "${hubs.Agent}") { executions${list} } }`, id: 'id' },
  'a list of each of two rows': {
    wrap: (list) => `{ spaces(last: 2) { nodes { executions${list} } } }`,
    id: 'id',
  },
  'a list in ascending order': {
    wrap: (list) => `{ organization { members${list} } }`,
    id: 'user { id }',
  },
  'the versions of an agent': {
    wrap: (list) => `{ agent(id: "${hubs.Agent}") { versions${list} } }`,
    id: 'version',
  },
  'the messages of a chat': { wrap: (list) => `{ chat(id: "${hubs.Chat}") { messages${list} } }`, id: 'id' },
  'the events of a run': {
    wrap: (list) => `{ execution(id: "${hubs.Execution}") { events${list} } }`,
    id: 'seq',
  },
}

const connectionIn = (value: any): any =>
  value.pageInfo ? value : connectionIn(Object.values(value).find((inner) => typeof inner === 'object'))

async function read(name: string, args: string): Promise<Page> {
  const { wrap, id } = lists[name]!
  const text = wrap(`(${args}) { pageInfo { hasPreviousPage hasNextPage } edges { cursor node { ${id} } } }`)
  const { data, errors } = await graphql(server, text, {}, member)
  expect(errors).toBeUndefined()
  const { edges, pageInfo } = connectionIn(Array.isArray(data) ? data[0] : data)
  const ids = edges.map(({ node }: any) => JSON.stringify(node))
  const cursors = edges.map(({ cursor }: any) => cursor)
  return { ids, has: [pageInfo.hasPreviousPage, pageInfo.hasNextPage], cursors }
}

describe.each(Object.keys(lists))('%s', (name) => {
  test('has the same pages forwards and backwards, and reports its ends', async () => {
    const all = await read(name, 'first: 100')
    expect(all.ids.length).toBeGreaterThan(0)
    expect(all.has[0]).toBe(false)
    const size = Math.max(1, Math.ceil(all.ids.length / 3))
    const forwards: string[] = []
    let page = await read(name, `first: ${size}, after: ""`)
    for (;;) {
      expect(page.has[0]).toBe(forwards.length > 0)
      forwards.push(...page.ids)
      if (!page.has[1] || forwards.length >= all.ids.length) break
      page = await read(name, `first: ${size}, after: "${page.cursors.at(-1)}"`)
    }
    expect(forwards.slice(0, all.ids.length)).toEqual(all.ids)
    const middle = all.cursors[Math.floor(all.ids.length / 2)]!
    const before = await read(name, `last: 2, before: "${middle}"`)
    const at = Math.floor(all.ids.length / 2)
    expect(before.ids).toEqual(all.ids.slice(Math.max(0, at - 2), at))
    expect(before.has).toEqual([at > 2, true])
    const between = await read(name, `first: 1, after: "${all.cursors[0]}", before: "${middle}"`)
    expect(between.ids).toEqual(all.ids.slice(1, Math.max(1, Math.min(2, at))))
    expect(between.has[0]).toBe(true)
    const start = await read(name, `last: 5, before: "${all.cursors[0]}"`)
    expect(start).toEqual({ ids: [], cursors: [], has: [false, true] })
  })

  test('starts at its end with `last` alone', async () => {
    const all = await read(name, 'first: 100')
    const end = await read(name, 'last: 2')
    if (all.has[1]) return
    expect(end.ids).toEqual(all.ids.slice(-2))
    expect(end.has).toEqual([all.ids.length > 2, false])
  })
})

test('a page with both first and last is refused', async () => {
  const { message } = await graphql(server, '{ executions(first: 1, last: 1) { nodes { id } } }', {}, member)
  expect(message).toMatch(/^Invalid value for field: last/)
  const text = '{ executions(before: "x") { nodes { id } } }'
  expect((await graphql(server, text, {}, member)).message).toMatch(/^Invalid value for field: before/)
})

test('a persisted query of Apollo gets the error that makes the client send its document', async () => {
  const extensions = { persistedQuery: { version: 1, sha256Hash: 'ab' } }
  const answers = [
    await post(server, { operationName: 'Q', variables: {}, extensions }),
    await fetch(`${server.url}/graphql?extensions=${encodeURIComponent(JSON.stringify(extensions))}`, {
      headers: { Authorization: `Bearer ${server.token}`, 'Apollo-Require-Preflight': 'true' },
    }),
  ]
  for (const answer of answers) {
    expect(answer.status).toBe(200)
    expect(await answer.json()).toMatchObject({
      errors: [{ message: 'PersistedQueryNotSupported', extensions: { code: 'PERSISTED_QUERY_NOT_SUPPORTED' } }],
    })
  }
  expect(await (await post(server, { query: '{ __typename }', extensions })).json()).toEqual({
    data: { __typename: 'Query' },
  })
})
