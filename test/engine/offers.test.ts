import type { JSONSchema7 } from '@ai-sdk/provider'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { fitSchema } from '../../src/executions/engine/models/tool-schemas.ts'
import { fitInput } from '../../src/executions/engine/run/inputs.ts'
import { findTool, offerable, offersOf, understood, writesCall } from '../../src/executions/engine/run/offers.ts'
import type { Tool } from '../../src/executions/engine/run/tools.ts'

const tool = (name: string, more: Partial<Tool> = {}): Tool => ({
  name,
  target: name,
  description: 'Test',
  mode: 'allow',
  inputSchema: { type: 'object' },
  call: async () => ({ content: '', isError: false }),
  ...more,
})
const fitted = (schema: object): any => fitSchema(schema)?.schema

it.each([
  [true, 'Let me see.\n<tool_call>\n{"name": "echo", "arguments": {}}\n</tool_call>'],
  [true, '[TOOL_CALLS]echo[ARGS]{}'],
  [true, '<|channel|>commentary to=functions.echo <|constrain|>json<|message|>{}'],
  [true, 'Let me see.]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="echo">'],
  [true, 'Let me see.<|open|>toolscall tool="echo" index="1"<|sep|>'],
  [true, 'Let me see. <｜｜DSML｜｜ invoke name="echo">'],
  [true, '{"name": "echo", "parameters": {"q": "x"}}'],
  [true, '[{"name": "echo", "arguments": {"q": "x"}}]'],
  [true, '<TOOLCALL>[{"name": "echo", "arguments": {}}]</TOOLCALL>'],
  [true, '<tool_calls><tool_call>echo</tool_call></tool_calls>'],
  [true, '<longcat_tool_call>echo</longcat_tool_call>'],
  [true, '<start_function_call>call:echo{q:<escape>1<escape>}<end_function_call>'],
  [true, '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="echo">'],
  [true, 'commentary to=functions.echo json{"q":"1"}'],
  [true, '```tool_code\necho(q="1")\n```'],
  [false, '[1, 2]'],
  [false, '{"name": "Ada", "parameters": {"q": "x"}}'],
  [false, '{"name": "echo"'],
  [false, 'Write `<tool_call>` before each call.'],
])('a text counts as a tool call that its server did not parse (%s): %s', (isCall, text) => {
  expect(writesCall(text, [tool('echo')])).toBe(isCall)
})

/** Items of a list whose schema admits any. */
const ANY_ITEM = {
  anyOf: [{ type: 'string' }, { type: 'number' }, { type: 'boolean' }, { type: 'object', properties: {} }],
}

/** Throws if OpenAI, Anthropic or Gemini would refuse a schema. */
function check(schema: any, isTop = true): void {
  const no = ['$ref', '$defs', 'definitions', 'allOf', 'oneOf', 'not', 'if', 'patternProperties', 'dependencies']
  for (const name of no) expect(schema).not.toHaveProperty(name)
  if (isTop) expect([schema.type, schema.anyOf, schema.enum]).toEqual(['object', undefined, undefined])
  const types = [schema.type ?? []].flat()
  for (const type of types) {
    expect(['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']).toContain(type)
  }
  if (types.includes('object')) expect(schema.properties).toBeTypeOf('object')
  if (types.includes('array')) expect(Object.keys(schema.items)).not.toEqual([])
  if (schema.enum) expect(schema.enum.length > 0 && !schema.enum.includes('')).toBe(true)
  if (schema.description) expect(schema.description.length).toBeLessThanOrEqual(1024)
  if (schema.exclusiveMinimum !== undefined) expect(schema.exclusiveMinimum).toBeTypeOf('number')
  const names = Object.keys(schema.properties ?? {})
  for (const name of names) expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/)
  for (const name of schema.required ?? []) expect(names).toContain(name)
  const below = [...Object.values(schema.properties ?? {}), ...(schema.anyOf ?? []), schema.items ?? []].flat()
  for (const inner of below) check(inner, false)
}

const property = fc.oneof(
  fc.constantFrom('a', 'b', '$filter', 'user.name', '@type', 'x'.repeat(80), 'filter', 'ünï', ' ', ''),
  fc.string({ maxLength: 5 }),
)
const { schema: anySchema } = fc.letrec((tie) => ({
  schema: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom<unknown>(
      true,
      {},
      { type: 'string', format: 'uri' },
      { type: 'any' },
      { const: 1 },
      { enum: [''] },
    ),
    fc.constantFrom<unknown>({ $ref: '#/$defs/node' }, { $ref: '#' }, { $ref: 'other.json' }, { type: 'array' }),
    fc.constantFrom<unknown>(
      { type: 'number', exclusiveMinimum: true },
      { type: ['string', 'null'] },
      { type: 'object' },
    ),
    fc.record({ anyOf: fc.array(tie('schema'), { maxLength: 3 }), description: fc.constant('x'.repeat(2000)) }),
    fc.record({
      type: fc.constant('array'),
      items: fc.oneof(tie('schema'), fc.array(tie('schema'), { maxLength: 2 })),
    }),
    fc.record({
      type: fc.constant('object'),
      properties: fc.dictionary(property, tie('schema'), { maxKeys: 4 }),
      required: fc.array(property, { maxLength: 3 }),
      additionalProperties: fc.oneof(fc.boolean(), tie('schema')),
    }),
    fc.record({ allOf: fc.array(tie('schema'), { maxLength: 2 }), oneOf: fc.array(tie('schema'), { maxLength: 2 }) }),
  ),
}))

describe('the schema of a tool', () => {
  it('is one that OpenAI, Anthropic and Gemini accept, whatever a server sends', () => {
    fc.assert(
      fc.property(anySchema, anySchema, (top, node) => {
        const root = { ...(typeof top === 'object' ? top : {}), $defs: { node } } as { type?: string }
        const schema = fitted({ ...root, type: 'object' })
        if (schema) check(schema)
      }),
      { numRuns: 300 },
    )
  })

  it('has unusual property names mapped, and inputs get the originals back', () => {
    fc.assert(
      fc.property(fc.uniqueArray(property, { maxLength: 8 }), (names) => {
        const inner = {
          type: 'object',
          properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])),
        }
        const list = { type: 'array', items: inner }
        const found = fitSchema({ ...inner, properties: { ...inner.properties, list } })!
        const properties = Object.keys((found.schema.properties!.list as any).items.properties)
        expect(properties).toHaveLength(names.length)
        const restored: any = found.restore({ list: [Object.fromEntries(properties.map((name, at) => [name, at]))] })
        expect(Object.keys(restored.list[0]).sort()).toEqual([...names].sort())
      }),
      { numRuns: 200 },
    )
  })

  it('leaves out listed values that are of another type', () => {
    const properties = { a: { type: 'null', enum: ['x'] }, b: { type: ['integer', 'null'], enum: [1, '2', null] } }
    expect(fitted({ type: 'object', properties })).toEqual({
      type: 'object',
      properties: { a: { type: 'null' }, b: { type: ['integer', 'null'], enum: [1] } },
    })
  })

  it('leaves out a list of required properties among the properties', () => {
    expect(fitted({ type: 'object', properties: { q: { type: 'string' }, required: ['q'] } })).toEqual({
      type: 'object',
      properties: { q: { type: 'string' } },
    })
  })

  it('allows the properties of all its alternatives, and requires those they share', () => {
    const one = { properties: { kind: { const: 'a' }, a: { type: 'string' } }, required: ['kind', 'a'] }
    const other = { properties: { kind: { const: 'b' }, b: { type: 'array' } }, required: ['kind'] }
    expect(fitted({ type: 'object', oneOf: [one, other] })).toEqual({
      type: 'object',
      properties: {
        kind: {
          anyOf: [
            { type: 'string', enum: ['a'] },
            { type: 'string', enum: ['b'] },
          ],
        },
        a: { type: 'string' },
        b: { type: 'array', items: ANY_ITEM },
      },
      required: ['kind'],
    })
  })

  const empty = { type: 'object', properties: {} }
  it.each<[string, object, object]>([
    ['any value beside null', { anyOf: [{}, { type: 'null' }] }, {}],
    ['a list of anything', { type: 'array', items: {} }, { type: 'array', items: ANY_ITEM }],
    ['a list of anything first', { type: 'array', prefixItems: [true, empty] }, { type: 'array', items: ANY_ITEM }],
    ['names by pattern', { type: 'object', patternProperties: { '^x': empty } }, empty],
    [
      'only names by pattern',
      { type: 'object', patternProperties: { '^x': empty }, additionalProperties: false },
      { ...empty, additionalProperties: empty },
    ],
    ['a list with properties', { type: 'array', properties: {} }, { type: 'array', items: ANY_ITEM }],
    [
      'an object or null within itself',
      { ...empty, properties: { a: { anyOf: [{ $ref: '#/properties/p' }, { type: 'null' }] } } },
      expect.objectContaining({ properties: { a: { anyOf: [expect.anything(), { type: 'null' }] } } }),
    ],
  ])('admits %s', (_, schema, expected) => {
    const found = fitted({ type: 'object', properties: { p: schema } })
    check(found)
    expect(found.properties.p).toEqual(expected)
  })

  it('lists fewer levels of a schema that is too large', () => {
    const levels = (left: number): object => ({
      type: 'object',
      description: 'x'.repeat(100),
      properties: Object.fromEntries(
        Array.from('abcdef', (name) => [name, left ? levels(left - 1) : { type: 'null' }]),
      ),
    })
    const schema = fitted(levels(5))
    check(schema)
    expect(schema.properties.a.properties.b.properties.c).toEqual({
      type: 'object',
      description: 'x'.repeat(100),
      properties: {},
    })
  })

  it('a recursive schema is unrolled, and one that is no object is dropped with a warning', () => {
    const node = { type: 'object', properties: { child: { $ref: '#/$defs/node' }, name: { type: 'string' } } }
    const schema = fitted({ type: 'object', properties: { tree: { $ref: '#/$defs/node' } }, $defs: { node } })
    expect(schema.properties.tree.properties.child.properties.name).toEqual({ type: 'string' })
    check(schema)
    const warnings: string[] = []
    const good = tool('good')
    const text = tool('text', { inputSchema: { type: 'string' } as JSONSchema7 })
    expect(offerable([good, text], [], (code, text) => warnings.push(`${code}: ${text}`))).toEqual([good])
    expect(warnings).toEqual([expect.stringMatching(/^tool_missing: .*text$/)])
  })
})

it('a model gets at most 128 tools, explicitly allowed ones first, built once per run', () => {
  const tools = Array.from({ length: 150 }, (_, index) => tool(`t${index}`, { aliases: [`Server__t${index}`] }))
  const warnings: string[] = []
  const offered = offerable(tools, ['Server__t149', 't140'], (code) => warnings.push(code))
  expect([offered.length, warnings]).toEqual([128, ['tool_missing']])
  expect(offered.slice(0, 3).map(({ name }) => name)).toEqual(['t140', 't149', 't0'])
  expect(offersOf(offered)).toBe(offersOf(offered))
})

it.each([
  ['search', 'search'],
  ['functions.search', 'search'],
  ['functions.search:0', 'search'],
  ['default_api:search', 'search'],
  ['search<|channel|>commentary', 'search'],
  ['Search', 'search'],
  ['mail.send', 'mail_send'],
  ['Mail__send', 'mail_send'],
  ['mcp__mail__send', undefined],
  ['mcp__mail__mail_send', 'mail_send'],
  ['to=functions.search', 'search'],
  ['delete', undefined],
  ['nothing', undefined],
])('a call of %s finds the tool %s', (name, expected) => {
  const tools = [
    tool('search'),
    tool('mail_send', { aliases: ['mail.send', 'Mail__mail_send'] }),
    tool('A__delete', { aliases: ['delete'] }),
    tool('B__delete', { aliases: ['delete'] }),
  ]
  expect(findTool(tools, name)?.name).toBe(expected)
})

it('a call that makes several at once is read as these', () => {
  const call = { type: 'tool-call' as const, toolCallId: '1', toolName: 'multi_tool_use.parallel' }
  const tool_uses = ['a', 'b'].map((q) => ({ recipient_name: 'functions.echo', parameters: { q } }))
  expect(understood([{ ...call, input: { tool_uses } }], [tool('echo')])).toEqual([
    { ...call, toolName: 'echo', input: { q: 'a' } },
    { ...call, toolCallId: '1_2', toolName: 'echo', input: { q: 'b' } },
  ])
  const odd = { ...call, input: { tool_uses: [{}] } }
  expect(understood([odd], [tool('echo')])).toEqual([odd])
})

it('a call is read with the name and the properties of its tool', () => {
  const odd = tool('odd', { inputSchema: { type: 'object', properties: { $filter: { type: 'string' } } } })
  const call = { type: 'tool-call' as const, toolCallId: '1', toolName: 'functions.odd', input: { filter: 'x' } }
  expect(understood([call], [odd])).toEqual([{ ...call, toolName: 'odd', input: { $filter: 'x' } }])
})

describe('the input of a call', () => {
  const integer = { type: 'integer' }
  const text = { type: 'string' }
  const list = { type: 'array', items: { type: 'object', properties: { n: integer } } }
  const node = { type: 'object', properties: { n: integer, next: { $ref: '#/$defs/node' } } }
  const color = { type: 'string', enum: ['red', 'green'] }
  const nullable = (schema: object) => ({ anyOf: [schema, { type: 'null' }] })
  it.each<[string, object, object, object]>([
    ['leaves out null of an optional property', { a: text }, { a: null, b: null }, { b: null }],
    ['leaves out empty texts of an optional property', { a: integer, b: list }, { a: '', b: 'None' }, {}],
    ['leaves out an empty text that is no value of an enum', { a: { enum: ['x', 'y'] } }, { a: '' }, {}],
    ['leaves out an empty text that is too short', { a: { ...text, minLength: 1 } }, { a: '' }, {}],
    [
      'has lists and objects that were written as texts',
      { a: list, b: node },
      { a: '[{"n":"7"}]', b: '{"n":"8"}' },
      { a: [{ n: 7 }], b: { n: 8 } },
    ],
    [
      'has numbers and booleans that were written as texts',
      { a: integer, b: { type: 'boolean' } },
      { a: ' 7', b: 'True' },
      { a: 7, b: true },
    ],
    [
      'is fitted through references and alternatives',
      { a: { anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }] } },
      { a: { next: { n: '7' } } },
      { a: { next: { n: 7 } } },
    ],
    ['has null for a word that stands for it', { a: { type: ['integer', 'null'] } }, { a: 'null' }, { a: null }],
    // As pydantic writes `Optional[date]` and `Optional[Color]`.
    [
      'has null for a text that is neither in the format nor in the enum',
      { a: nullable({ ...text, format: 'date' }), b: nullable({ $ref: '#/$defs/color' }), c: nullable({ const: 'x' }) },
      { a: '', b: '', c: 'None' },
      { a: null, b: null, c: null },
    ],
    // As fastapi-mcp writes optional fields.
    [
      'leaves out null and empty texts where a type beside the alternatives excludes null',
      {
        a: { ...nullable({ type: 'number' }), type: 'number' },
        b: { ...nullable({ ...text, format: 'date' }), type: 'string' },
        c: { ...nullable(integer), type: 'number' },
      },
      { a: null, b: '', c: '7' },
      { c: 7 },
    ],
    [
      'leaves out a word for null that is neither in the format nor in the enum',
      { a: { ...text, format: 'date-time' }, b: { enum: ['x', 'y'] }, c: { ...text, format: 'uuid' } },
      { a: '', b: 'null', c: 'None' },
      {},
    ],
  ])('%s', (_, properties, given, expected) => {
    expect(fitInput(given, { type: 'object', properties, $defs: { node, color } })).toEqual(expected)
  })

  it.each<[string, object, object]>([
    [
      'null where the schema admits it',
      { a: { type: ['string', 'null'] }, b: { enum: ['x', null] }, c: { ...text, nullable: true } },
      { a: null, b: null, c: null },
    ],
    ['null of a required property', { need: text }, { need: null }],
    [
      'null where a type beside the alternatives admits it',
      {
        a: { ...nullable(text), type: ['string', 'null'] },
        b: { type: 'number', nullable: true, anyOf: [integer] },
        c: {
          type: 'object',
          properties: { n: { ...nullable(integer), description: 'x' } },
          anyOf: [{ required: ['n'] }, {}],
        },
      },
      { a: null, b: null, c: { n: null } },
    ],
    [
      'texts where the schema admits texts',
      { a: text, b: { anyOf: [list, text] }, c: {}, d: { type: 'any' } },
      { a: '', b: '[1]', c: '7', d: '[]' },
    ],
    [
      'empty texts and words for null where the schema admits such texts',
      {
        a: nullable(text),
        b: { enum: ['', 'none'] },
        c: { ...text, format: 'password' },
        d: { ...text, minLength: 4 },
      },
      { a: '', b: 'none', c: '', d: 'null' },
    ],
    [
      'texts that are no value of the type',
      { a: integer, b: list, c: { type: 'boolean' } },
      { a: '7.5', b: 'x, y', c: 'yes' },
    ],
    ['values of other types', { a: text, b: { $ref: '#/$defs/self' } }, { a: 7, b: '7' }],
  ])('keeps %s', (_, properties, given) => {
    const self = { anyOf: [{ $ref: '#/$defs/self' }, { $ref: '#/$defs/self' }] }
    expect(fitInput(given, { type: 'object', properties, required: ['need'], $defs: { self } })).toEqual(given)
  })

  it('is fitted for the tools of a server, and not for those of the client', () => {
    const inputSchema = { type: 'object', properties: { ids: list } } as JSONSchema7
    const call = { type: 'tool-call' as const, toolCallId: '1', toolName: 'find', input: { ids: '[]' } }
    expect(understood([call], [tool('find', { inputSchema })])).toMatchObject([{ input: { ids: [] } }])
    expect(understood([call], [tool('find', { inputSchema, isClients: true })])).toEqual([call])
  })
})
