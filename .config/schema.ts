/**
 * Prints the GraphQL schema into schema.graphql. With `--check` it writes nothing and fails if the file differs from
 * the code.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { printSchema } from 'graphql'
import { schema } from '../src/graphql/schema.ts'
import { readOptions } from './options.ts'

const { values } = readOptions('Usage: npm run schema -- [--check]', { options: { check: { type: 'boolean' } } })
const path = join(dirname(import.meta.dirname), 'schema.graphql')
const printed = `${printSchema(schema)}\n`

if (!values.check) writeFileSync(path, printed)
else if (readFileSync(path, 'utf8') !== printed) {
  console.error('schema.graphql is not what the code gives: run node .config/schema.ts')
  process.exit(1)
}
