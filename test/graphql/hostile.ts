import { getIntrospectionQuery, Kind, parse, print, visit } from 'graphql'

/**
 * Documents that ask for too much, each in another way. The server must refuse all of them before any resolver or
 * statement.
 */
const nested = (depth: number, open: string, inner: string) => `${open} `.repeat(depth) + inner + '}'.repeat(depth)
const times = (count: number, make: (i: number) => string, separator = ' ') =>
  Array.from({ length: count }, (_, i) => make(i)).join(separator)

const FIELDS = `id name role visibility organizationId userId model description category image color initialGreeting
  maxTurns version archived createdAt updatedAt`.split(/\s+/)

const types = (depth: number) => `{__schema{types${'{fields{type'.repeat(depth)}{name}${'}}'.repeat(depth)}}}`

function schemaTwice(): string {
  const alias = (value: string) => ({ kind: Kind.NAME, value }) as const
  const twice = visit(parse(getIntrospectionQuery()), {
    OperationDefinition: (node) => {
      const selections = ['a', 'b'].flatMap((name) =>
        node.selectionSet.selections.map((field) => ({ ...field, alias: alias(name) })),
      )
      return { ...node, selectionSet: { ...node.selectionSet, selections } }
    },
  })
  return print(twice)
}

export const hostile: Record<string, string> = {
  'parents of parents': `{execution(id:"x")${nested(20, '{parent', '{id}')}}`,
  'parents of parents, inline fragments between': `{execution(id:"x")${'{...on Execution{parent'.repeat(20)}{id}${'}}'.repeat(20)}}`,
  'parents of parents, by fragments': `{execution(id:"x"){...F0}} ${times(20, (i) => `fragment F${i} on Execution{parent{...F${i + 1}}}`)} fragment F20 on Execution{id}`,
  'fields that do not exist, deep': `{a${nested(200, '{a', '{a}')}}`,
  'agents of executions of agents':
    '{agents{nodes{executions{nodes{agent{executions{nodes{agent{executions{nodes{id}}}}}}}}}}}',
  'subagents of subagents': '{agents(first:1){nodes{subagents{subagents{subagents{id}}}}}}',
  'a list for each row': '{agents(first:1000){nodes{executions(first:100){nodes{id}}}}}',
  'a list for each row, with the greatest limits':
    '{agents(first:1000){edges{node{executions(first:100){edges{node{id}}}}}}}',
  'a list for each row, by a fragment':
    '{agents(first:1000){nodes{...F}}} fragment F on Agent{versions(first:100){nodes{version}}}',
  'a list for each row, limit in a default':
    'query($n:Int=1000){agents(first:$n){nodes{versions(first:100){nodes{version}}}}}',
  'long texts of many rows': '{agents(first:200){nodes{executions(first:100){nodes{message result}}}}}',
  'what many agents were, with their prompts':
    '{agents(first:300){nodes{versions(first:100){nodes{agent{systemPrompt}}}}}}',
  'long texts of many rows, twice':
    '{agents(first:100){nodes{...F}} more:agents(first:100){nodes{...F}}} fragment F on Agent{executions(first:100){nodes{message result}}}',
  'long logs':
    '{executions(first:500){nodes{events(first:100){nodes{seq at ...on TextDeltaEvent{text step} ...on ErrorEvent{message status} ...on MetaEvent{chatId sessionId}}}}}}',
  'the same list by many aliases': `{${times(31, (i) => `a${i}:agents(first:1){totalCount}`)}}`,
  'aliases below': `{agents(first:1){nodes{${times(31, (i) => `a${i}:name`)}}}}`,
  'aliases in fragments': `{agents(first:1){nodes{...A ...B}}} fragment A on Agent{${times(16, (i) => `a${i}:name`)}} fragment B on Agent{${times(16, (i) => `b${i}:name`)}}`,
  'aliases multiplied by fragments': `{agents(first:1){nodes{...A ...B}}} fragment A on Agent{...C ...C ...C ...C} fragment B on Agent{...C ...C ...C ...C} fragment C on Agent{a:name b:name c:name d:name}`,
  'many mutations': `mutation{${times(21, (i) => `a${i}:deleteAgent(id:"x"){message}`)}}`,
  'many mutations by a fragment': `mutation{...F} fragment F on Mutation{${times(21, (i) => `a${i}:deleteAgent(id:"x"){message}`)}}`,
  'the schema of the schema of itself': getIntrospectionQuery({ typeDepth: 100 }),
  'many fields at the root': `{${times(40, () => '__typename')}}`,
  'many fields that do not exist': `{${times(600, (i) => `a${i}`)}}`,
  'the same field again and again': `{agents(first:100){nodes{${times(900, () => 'id')}}}}`,
  'many directives': `{${times(31, () => '__typename @skip(if:false)')}}`,
  'two directives at every field': `{agents(first:1){nodes{${FIELDS.map((name) => `${name} @skip(if:false) @include(if:true)`).join(' ')}}}}`,
  'many errors': `{agents(first:1){nodes{${times(200, (i) => `a${i}`)}}}}`,
  'many directives at one field': `{__typename ${times(200, () => '@skip(if:false)')}}`,
  'directives that do not exist': `{__typename ${times(900, (i) => `@a${i}`)}}`,
  'many tokens': `{${times(2500, () => 'id')}}`,
  'many tokens in a list': `{agents(first:[${times(3000, (i) => `${i}`)}]){totalCount}}`,
  'deep lists': `{agents(first:${'['.repeat(2000)}${']'.repeat(2000)}){totalCount}}`,
  'a long document': `{__typename}${' '.repeat(200_000)}`,
  'a long comment': `#${'x'.repeat(200_000)}\n{__typename}`,
  'many operations': times(400, (i) => `query Q${i}{__typename}`),
  'many fragments': `{...F0} ${times(400, (i) => `fragment F${i} on Query{...F${i + 1}}`)}`,
  'fragments that double, and double': `{...F0} ${times(30, (i) => `fragment F${i} on Query{...F${i + 1} ...F${i + 1}}`)} fragment F30 on Query{models{models{id}}}`,
  'a circle of fragments': '{...A} fragment A on Query{...B} fragment B on Query{...A}',
  'a fragment in itself, with lists': '{agents{nodes{...A}}} fragment A on Agent{executions{nodes{agent{...A}}}}',
  'many variables, all of them used': `query(${times(51, (i) => `$v${i}:String`)}){${times(17, (i) => `a${i}:agents(tag:$v${3 * i},search:$v${3 * i + 1},after:$v${3 * i + 2},first:1){totalCount}`)}}`,
  'many variables': `query(${times(300, (i) => `$v${i}:Int`)}){__typename}`,
  'the schema twice': schemaTwice(),
  'types of fields of types': types(3),
  'types of fields of types, deeper': types(40),
  'possible types of interfaces of types': `{__schema{types{interfaces{possibleTypes{interfaces{possibleTypes{name}}}}}}}`,
  'a deep subscription': `subscription{executionEvents(executionId:"x")${nested(20, '{seq', '{seq}')}}`,
  'a subscription with aliases': `subscription{executionEvents(executionId:"x"){${times(31, (i) => `a${i}:seq`)}}}`,
  'lists of lists of what changes':
    'subscription{taskChanges{executions(first:100){nodes{children(first:100){edges{node{children(first:100){totalCount}}}}}}}}',
  'lists of lists of a node':
    '{node(id:"x"){...on Agent{executions(first:100){nodes{children(first:100){edges{cursor node{message result preview error}}}}}}}}',
  'lists of lists of members':
    '{organization{members(first:100){nodes{user{id}} edges{node{user{id name image}}}}} agents(first:1000){nodes{tasks(first:100){nodes{id}}}}}',
  'a page of 1,000 for each of many': '{agents(first:2){nodes{executions(first:1000){nodes{id}}}}}',
  'two subscriptions in one':
    'subscription{a:executionEvents(executionId:"x"){seq} b:executionEvents(executionId:"x"){seq}}',
}
