import { readFileSync } from 'node:fs'
import {
  isInputObjectType,
  isInterfaceType,
  isObjectType,
  isScalarType,
  isSpecifiedScalarType,
  parse,
  validate,
} from 'graphql'
import { describe, expect, test } from 'vitest'
import { extensionsOf } from '../../src/graphql/builder.ts'
import { checkLimits } from '../../src/graphql/document-limits.ts'
import { schema } from '../../src/graphql/schema.ts'

const types = Object.values(schema.getTypeMap()).filter(({ name }) => !name.startsWith('__'))
const fields = types.flatMap((type) =>
  isObjectType(type) || isInterfaceType(type) || isInputObjectType(type)
    ? Object.values(type.getFields()).map((field) => ({ name: `${type.name}.${field.name}`, type, field }))
    : [],
)

describe('the schema', () => {
  test('describes every type, field and argument', () => {
    expect(types.filter(({ description }) => !description).map(({ name }) => name)).toEqual([])
    expect(fields.filter(({ field }) => !field.description).map(({ name }) => name)).toEqual([])
    const args = fields.flatMap(({ name, field }) =>
      'args' in field
        ? field.args.map((arg: { name: string; description?: string | null }) => [
            `${name}(${arg.name})`,
            arg.description,
          ])
        : [],
    )
    expect(args.filter(([, description]) => !description).map(([name]) => name)).toEqual([])
  })

  test('has its own scalars for dates, and JSON only for values without a schema', () => {
    const scalars = types.filter((type) => isScalarType(type) && !isSpecifiedScalarType(type)).map(({ name }) => name)
    expect(scalars.sort()).toEqual(['Date', 'DateTime', 'JSON'])
    const of = (scalar: string) =>
      fields.filter(({ field }) => String(field.type).replace(/[![\]]/g, '') === scalar).map(({ name }) => name)
    expect(of('JSON').sort()).toEqual([
      'Agent.modelSettings',
      'AgentSnapshot.modelSettings',
      'Approval.editedInput',
      'Approval.input',
      'AuditEvent.changes',
      'ExecuteAgentPayload.resultObject',
      'Execution.resultObject',
      'McpTool.inputSchema',
      'ModelSettingsInput.providerOptions',
      'OrganizationEvent.data',
      'Output.schema',
      'OutputInput.schema',
      'ResultEvent.resultObject',
      'ToolCall.input',
      'ToolUseBlock.input',
    ])
    const dates = fields.filter(({ field }) => /At$|^(date|since)$/.test(field.name) && field.name !== 'startAt')
    for (const { name, field } of dates)
      expect([name, String(field.type)]).toEqual([name, expect.stringMatching(/^Date/)])
  })

  test('has connections as its only lists, with first and after', () => {
    const connections = types.filter(({ name }) => name.endsWith('Connection'))
    expect(connections.length).toBeGreaterThan(12)
    for (const type of connections) {
      if (!isObjectType(type)) throw new Error(type.name)
      const row = type.name.replace(/Connection$/, '')
      const { edges, nodes, pageInfo } = type.getFields()
      expect([edges, nodes, pageInfo].map((field) => String(field?.type))).toEqual([
        `[${row}Edge!]!`,
        `[${row}!]!`,
        'PageInfo!',
      ])
    }
    const shows = fields.filter(({ field }) => /Connection!?$/.test(String(field.type)))
    for (const { name, field } of shows) {
      const names = 'args' in field ? field.args.map((arg: { name: string }) => arg.name) : []
      expect([name, names]).toEqual([name, expect.arrayContaining(['first', 'after'])])
    }
  })

  test('names mutations by verbs, and gives each Node type its scopes', () => {
    for (const name of Object.keys(schema.getMutationType()!.getFields())) {
      expect(name).toMatch(
        /^(execute$|(create|update|delete|send|rerun|set|write|claim|execute|cancel|run|pause|resume|approve|deny|rotate|test|replay|connect|disconnect)[A-Z])/,
      )
    }
    const nodes = types.filter((type) => isObjectType(type) && type.getInterfaces().some(({ name }) => name === 'Node'))
    expect(nodes.map(({ name }) => name).sort()).toEqual(
      ['Agent', 'Approval', 'Chat', 'Execution', 'Key', 'Mcp', 'Media', 'Message', 'Mission', 'Organization'].concat([
        'Skill',
        'Space',
        'Task',
        'User',
      ]),
    )
    for (const type of nodes) expect([type.name, extensionsOf(type).scopes]).toEqual([type.name, expect.any(Array)])
  })

  test('covers the queries of the guide, which are valid and within the limits', () => {
    const queries = [...readFileSync('docs/guides/graphql.md', 'utf8').matchAll(/```graphql\n(.*?)```/gs)].map(
      ([, text = '']) => text,
    )
    expect(queries.length).toBeGreaterThan(0)
    for (const document of queries.map((text) => parse(text))) {
      expect(validate(schema, document)).toEqual([])
      checkLimits(schema, document, {})
    }
  })
})
