// GraphQL: a mutation, a subscription and a query that select single fields. It uses graphql-sse, because subscriptions
// are server-sent events.
//
//   TOKEN=mst_… npx node examples/graphql.ts
import { createClient } from 'graphql-sse'

const { MUSTER_URL = 'http://127.0.0.1:3000', TOKEN = '' } = process.env
const client = createClient({
  url: `${MUSTER_URL}/graphql`,
  headers: { Authorization: `Bearer ${TOKEN}` },
  // Retries would repeat mutations.
  retryAttempts: 0,
})

/** A document with the types of its variables and data, which a generator can make from schema.graphql. */
type Document<Variables, Data> = string & { types?: (variables: Variables) => Data }

const CREATE: Document<{ name: string }, { createAgent: { agent: { id: string } } }> = `
  mutation Create($name: String!) { createAgent(input: { name: $name, systemPrompt: "You are Ada." }) { agent { id } } }`

const EXECUTE: Document<{ id: string; message: string }, { executeAgent: { executionId: string } }> = `
  mutation Execute($id: ID!, $message: String!) {
    executeAgent(input: { id: $id, message: $message, background: true }) { executionId }
  }`

type Event = { __typename: 'TextDeltaEvent'; text: string } | { __typename: 'MetaEvent' | 'ResultEvent' | 'ErrorEvent' }

const FOLLOW: Document<{ id: string }, { executionEvents: Event }> = `
  subscription Follow($id: ID!) { executionEvents(executionId: $id) { __typename ... on TextDeltaEvent { text } } }`

const LOOK: Document<{ id: string }, { execution: { status: string; agent: { name: string } | null } | null }> = `
  query Look($id: ID!) { execution(id: $id) { status agent { name } } }`

/** Yields the answers of an operation: one, or those of a subscription. Throws the first error. */
async function* ask<V extends Record<string, unknown>, D>(query: Document<V, D>, variables: V): AsyncGenerator<D> {
  for await (const { data, errors } of client.iterate<D>({ query, variables })) {
    if (errors?.[0]) throw new Error(errors[0].message)
    if (data) yield data
  }
}

async function once<V extends Record<string, unknown>, D>(query: Document<V, D>, variables: V): Promise<D> {
  for await (const data of ask(query, variables)) return data
  throw new Error('There was no answer')
}

const { createAgent } = await once(CREATE, { name: 'Ada' })
const { executeAgent } = await once(EXECUTE, { id: createAgent.agent.id, message: 'Hello' })
for await (const { executionEvents: event } of ask(FOLLOW, { id: executeAgent.executionId })) {
  if (event.__typename === 'TextDeltaEvent') process.stdout.write(event.text)
}
const { execution } = await once(LOOK, { id: executeAgent.executionId })
console.log(`\n${execution?.agent?.name}: ${execution?.status}`)
