import type { oas31 } from 'zod-openapi'
import { SAMPLES, TIME } from './openapi-samples.ts'
import { nameIn } from './openapi-tidy.ts'

// Examples of the OpenAPI document, built from the schemas and the samples.

/** Marks a field without a sample, for the test of the document. */
export const NO_SAMPLE = '…'

/**
 * Returns the kind of resource of a component, which selects its samples: for operations the first word of their name.
 */
function kindOf(component: string): string {
  const [, resource] = /^([A-Z][a-z]+)s[A-Z]\w*(?:Result|Request)$/.exec(component) ?? []
  return KINDS[component] ?? resource ?? component
}

const KINDS: Readonly<Record<string, string>> = {
  AgentCard: 'Agent',
  AgentsExecuteResult: 'Executed',
  Character: 'Agent',
  ChatsSendResult: 'Executed',
  ExecutionListed: 'Execution',
  ExecutionsCreateResult: 'Executed',
  ExecutionsRerunResult: 'Executed',
  ExecutionNode: 'Execution',
  ListedToken: 'Key',
  MediaUploadResult: 'Media',
  SkillSummary: 'Skill',
  TasksExecuteResult: 'Executed',
  SpaceFile: 'File',
  ClientCreateTokenResult: 'Key',
  ClientExecuteResult: 'Executed',
  ClientRevokeTokenResult: 'Key',
}

type Schema = oas31.SchemaObject | oas31.ReferenceObject
type Schemas = Readonly<Record<string, Schema>>
/** The kind of resource that a schema belongs to, and the components on the path to it. */
type Place = { kind: string; path: readonly string[]; schemas: Schemas }

/** Builds an example that fits the schema. */
export const exampleOf = (schema: Schema, schemas: Schemas): unknown =>
  sampleOf(schema, '', { kind: '', path: [], schemas })

function sampleOf(schema: Schema, name: string, place: Place): unknown {
  if ('$ref' in schema) {
    const component = nameIn(schema.$ref)
    const target = place.schemas[component] ?? {}
    const kind = 'properties' in target ? kindOf(component) : place.kind
    return sampleOf(target, name, { ...place, kind, path: [...place.path, component] })
  }
  if (schema.properties) return objectOf(schema, place)
  const key = [`${place.kind}.${name}`, name].find((each) => Object.hasOwn(SAMPLES, each))
  if (schema.const !== undefined) return schema.const
  if (schema.type === 'array' && !(key && isListFor(schema, SAMPLES[key]))) return listOf(schema, name, place)
  if (key && isFitting(schema, SAMPLES[key])) return SAMPLES[key]
  return plainOf(schema, name, place)
}

/** Returns whether a sample is one of an enumeration's values, if the schema has one. */
const isFitting = (schema: oas31.SchemaObject, sample: unknown): boolean =>
  schema.enum === undefined || schema.enum.includes(sample as never)

/** Returns whether a sample fits a list: a list of texts for texts, or an empty one. */
const isListFor = ({ items }: oas31.SchemaObject, sample: unknown): boolean =>
  Array.isArray(sample) &&
  (sample.length === 0 || (typeof items === 'object' && 'type' in items && items.type === 'string'))

/** Takes the required fields, and optional ones with a sample for this kind of resource. */
function objectOf({ properties = {}, required = [] }: oas31.SchemaObject, place: Place): object {
  const named = Object.entries(properties).filter(
    ([name]) => required.includes(name) || Object.hasOwn(SAMPLES, `${place.kind}.${name}`),
  )
  return Object.fromEntries(named.map(([name, property]) => [name, sampleOf(property as Schema, name, place)]))
}

/** Takes one item, or none if the list leads back to its own component. */
function listOf({ items }: oas31.SchemaObject, name: string, place: Place): unknown[] {
  if (!items || typeof items === 'boolean') return []
  return '$ref' in items && place.path.includes(nameIn(items.$ref)) ? [] : [sampleOf(items, name, place)]
}

function plainOf(schema: oas31.SchemaObject, name: string, place: Place): unknown {
  const [option] = schema.oneOf ?? schema.anyOf ?? []
  if (option) return sampleOf(option as Schema, name, place)
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((part) => sampleOf(part as Schema, name, place)))
  if (schema.enum) return schema.enum[0]
  const [type] = [schema.type].flat()
  if (type === 'integer' || type === 'number') return schema.minimum ?? 1
  if (type === 'boolean') return false
  if (type !== 'string') return {}
  return schema.format === 'date-time' ? TIME : schema.format === 'date' ? TIME.slice(0, 10) : NO_SAMPLE
}
