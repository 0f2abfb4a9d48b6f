/** Generates dist/rest-client.ts: a TypeScript client from the OpenAPI document. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { generateSource } from 'oazapfts'
import { createDocument } from '../src/http/openapi.ts'
import { readSettings } from '../src/settings.ts'

const folder = join(dirname(import.meta.dirname), 'dist')
mkdirSync(folder, { recursive: true })
const document = join(folder, 'openapi.json')
writeFileSync(document, JSON.stringify(createDocument(readSettings({}))))
writeFileSync(join(folder, 'rest-client.ts'), await generateSource(document, { optimistic: true }))
