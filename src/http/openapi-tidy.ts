import type { OpenAPIObject } from 'trpc-to-openapi'
import type { oas31 } from 'zod-openapi'

/** The named schemas of a document. */
export type Schemas = Record<string, oas31.SchemaObject | oas31.ReferenceObject>

/** Returns the name of the component that a reference leads to. */
export const nameIn = ($ref: string): string => $ref.split('/').at(-1) ?? ''

/**
 * Leaves one of two schemas that are the same but for their names: zod-openapi has `<name>Output` beside `<name>` where
 * requests allow fewer fields than answers.
 */
export function withoutTwins(document: OpenAPIObject): OpenAPIObject {
  const schemas: Schemas = document.components?.schemas ?? {}
  const twins = Object.keys(schemas).filter((name) => {
    const like = name.endsWith('Output') ? schemas[name.slice(0, -'Output'.length)] : undefined
    return like && JSON.stringify(like) === JSON.stringify(schemas[name])
  })
  for (const name of twins) delete schemas[name]
  const to = (name: string) => `#/components/schemas/${name}`
  return JSON.parse(JSON.stringify(document), (_, value) => {
    const twin = twins.find((name) => value === to(name))
    return twin ? to(twin.slice(0, -'Output'.length)) : value
  })
}

/**
 * Removes misleading details of Zod's output: that responses have no further fields (they may), that integers are safe
 * ones, that constants are their own defaults, and the 300-character pattern of a `date-time`.
 */
export function withoutNoise(document: OpenAPIObject): OpenAPIObject {
  const text = JSON.stringify(document, function (this: { format?: unknown; const?: unknown }, key, value) {
    const isNoise =
      (key === 'additionalProperties' && value === false) ||
      (key === 'default' && value === this.const) ||
      (key === 'pattern' && this.format === 'date-time') ||
      (typeof value === 'number' && Math.abs(value) === Number.MAX_SAFE_INTEGER)
    return isNoise ? undefined : value
  })
  return JSON.parse(text)
}
