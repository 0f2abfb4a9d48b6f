import { describe, expect, test } from 'vitest'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { fill } from './many.ts'
import { graphql } from './support.ts'

const server = await use(startServer())
const member = await server.member({ organization: 'Many' })
const hubs = await fill(server, member)

/** Documents as people and their clients write them: with default arguments, fragments, aliases, `__typename`. */
const dashboards: Record<string, string> = {
  'an overview with a count of everything': `{
    agents { totalCount } spaces { totalCount } chats { totalCount } tasks { totalCount } missions { totalCount }
    executions { totalCount } skills { totalCount } mcps { totalCount } keys { nodes { id } } models { defaultModel }
  }`,
  'six lists with two relations each, as Apollo asks for them': `query Home {
    agents { nodes { __typename id name user { __typename id name } executions { nodes { __typename id status } } } }
    spaces { nodes { __typename id name owner { __typename id name } chats { nodes { __typename id title } } } }
    chats { nodes { __typename id title agent { __typename id name } space { __typename id name } } }
    tasks { nodes { __typename id title status space { __typename id name } execution { __typename id status } } }
    missions { nodes { __typename id title agent { __typename id name } runs { nodes { __typename id status } } } }
    executions { nodes { __typename id status agent { __typename id name } chat { __typename id title } } }
  }`,
  'six lists with two lists each': `{
    agents { totalCount nodes { id name tasks { nodes { id title status } } executions { nodes { id status model createdAt } } } }
    spaces { totalCount nodes { id name chats { nodes { id title updatedAt } } executions { nodes { id status preview } } } }
    chats { totalCount nodes { id title messages { nodes { id role createdAt } } executions { nodes { id status } } } }
    tasks { totalCount nodes { id title executions { nodes { id status } } space { chats { nodes { id } } } } }
    missions { totalCount nodes { id title runs { nodes { id status } } agent { versions { nodes { version } } } } }
    executions { totalCount nodes { id status children { nodes { id status } } approvals { nodes { id status } } } }
  }`,
  'spaces with their chats and messages': `{
    spaces(first: 20) { nodes { id name chats(first: 20) { nodes { id title status
      messages(first: 20) { nodes { id role content createdAt } } } } } }
  }`,
  'spaces with their chats and messages, as Relay compiles it': `query SpacesQuery($first: Int = 20, $after: String) {
    spaces(first: $first, after: $after) {
      edges { node { ...SpaceRow_space id __typename } cursor }
      pageInfo { endCursor hasNextPage }
    }
  }
  fragment SpaceRow_space on Space { id name owner { id name } chats(first: 20) {
    edges { node { ...ChatRow_chat id __typename } cursor } pageInfo { endCursor hasNextPage } } }
  fragment ChatRow_chat on Chat { id title messages(first: 20) {
    edges { node { id role content createdAt execution { id status __typename } __typename } cursor }
    pageInfo { endCursor hasNextPage } } }`,
  'a hundred agents with their latest runs': `{
    agents(first: 100) { nodes { id name model executions(first: 20) {
      totalCount nodes { id status stopReason preview createdAt executionTime usage { inputTokens outputTokens } } } } }
  }`,
  'runs with the runs that they started, three deep': `{
    executions(first: 20) { nodes { ...Run children(first: 10) { nodes { ...Run children(first: 10) { nodes { ...Run } } } } } }
  }
  fragment Run on Execution { __typename id status message result model agent { id name } usage { inputTokens outputTokens } }`,
  'agents with all that they are made of': `{
    agents { nodes { id name role description systemPrompt visibility model tags category version archived createdAt
      skills { id displayName } mcpServers { id name } subagents { id name } skillRefs { skillId } user { id name image } } }
  }`,
  'an agent with its history and a page of a thousand runs': `query ($id: ID!) {
    agent(id: $id) { id name versions(first: 50) { nodes { version createdAt userId } }
      executions(first: 1000) { totalCount nodes { id status message result createdAt } } }
  }`,
  'a chat as a page shows it': `query ($id: ID!) {
    chat(id: $id) { id title status agent { id name image } space { id name } owner { id name }
      messages(first: 1000) { totalCount pageInfo { hasNextPage endCursor } edges { cursor node { id role content
        toolCalls { id name input result isError } interrupted stopReason code detail createdAt
        execution { id status model usage { inputTokens outputTokens } } } } } }
  }`,
  'a run with its events': `query ($id: ID!) {
    execution(id: $id) { id status agent { name } parent { id status } approvals { nodes { id status toolName: tool } }
      events(first: 1000) { pageInfo { hasNextPage endCursor } nodes { __typename seq at
        ... on MetaEvent { chatId sessionId } ... on TextDeltaEvent { step text }
        ... on AssistantEvent { step content { __typename ... on TextBlock { text } ... on ToolUseBlock { id name input } } }
        ... on ToolResultEvent { toolUseId output isError } ... on ResultEvent { status stopReason }
        ... on ErrorEvent { status message code detail } } } }
  }`,
  'a board of tasks': `{
    pending: tasks(status: pending) { ...Column } running: tasks(status: in_progress) { ...Column }
    done: tasks(status: completed) { ...Column } cancelled: tasks(status: cancelled) { ...Column }
  }
  fragment Column on TaskConnection { totalCount nodes { id title description status priority
    assignedUser { id name image } assignedAgent { id name } space { id name }
    execution { id status error } executions { totalCount nodes { id status createdAt } } } }`,
  'missions and how they do': `{
    missions { totalCount nodes { id title goal status nextRunAt lastStatus lastError failureCount skippedCount
      agent { id name } space { id name } user { id name }
      runs(first: 10) { totalCount nodes { id status error createdAt completedAt } } } }
  }`,
  'an inbox of approvals': `{
    approvals(status: pending) { totalCount nodes { id status input description createdAt
      chat { id title } execution { id agent { id name } space { id name } user { id name } } } }
  }`,
  'a list that grows, as urql asks for its next page': `query Executions($first: Int!, $after: String) {
    executions(first: $first, after: $after) { __typename nodes { __typename id status preview createdAt
      agent { __typename id name } user { __typename id name } chat { __typename id title } space { __typename id name } }
      pageInfo { __typename hasNextPage endCursor } }
  }`,
  'an organization with its members and their work': `{
    organization { id name slug members { totalCount nodes { role createdAt user { id name image } } } }
    tasks(assignedTo: "me") { nodes { id title status execution { id status } } }
    chats { nodes { id title lastMessage messageCount agentName updatedAt } }
  }`,
  'a thing by its id, whatever it is': `query ($id: ID!) {
    node(id: $id) { __typename id
      ... on Agent { name executions { nodes { id status } } chats { nodes { id title } } }
      ... on Space { name files { nodes { path size } } missions { nodes { id title } } }
      ... on Chat { title messages { nodes { id content } } } }
  }`,
}

describe('a natural dashboard with default arguments is answered', () => {
  test.each(Object.entries(dashboards))('%s', async (_, text) => {
    const kind = (/\b(agent|chat|execution)\(id/.exec(text)?.[1] ?? 'agent') as 'agent' | 'chat' | 'execution'
    const id = hubs[({ agent: 'Agent', chat: 'Chat', execution: 'Execution' } as const)[kind]]
    const { status, data, errors } = await graphql(server, text, { id, first: 20 }, member)
    expect(errors).toBeUndefined()
    expect(status).toBe(200)
    expect(Object.values(data)).not.toContain(null)
  })
})

test('a list at the root has 50 rows by default, and a list within a row has 20', async () => {
  const text = `{ executions { nodes { id } } agent(id: "${hubs.Agent}") { executions { nodes { id } } } }`
  const { data } = await graphql(server, text, {}, member)
  expect(data.executions.nodes).toHaveLength(50)
  expect(data.agent.executions.nodes).toHaveLength(20)
})
