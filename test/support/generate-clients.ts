/**
 * Generates a client of the OpenAPI document at an address with some of the supported generators, into a folder: `node
 * generate-clients.ts URL FOLDER NAME…`. Runs in its own process, because a module hook gives the generators a
 * TypeScript with a JavaScript API, which the project's own lacks.
 */
import { writeFileSync } from 'node:fs'
import { createRequire, registerHooks } from 'node:module'
import { join } from 'node:path'
import { argv } from 'node:process'
import { pathToFileURL } from 'node:url'

const [, , url = '', folder = '', ...names] = argv
const typescript = createRequire(import.meta.resolve('oazapfts')).resolve('typescript')
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === 'typescript'
      ? { url: pathToFileURL(typescript).href, format: 'commonjs', shortCircuit: true }
      : next(specifier, context),
})

const document = join(folder, 'openapi.json')
writeFileSync(document, await (await fetch(`${url}/api/openapi.json`)).text())

const GENERATORS: Record<string, () => Promise<unknown>> = {
  async 'openapi-fetch'() {
    const { default: openapiTypescript, astToString } = await import('openapi-typescript')
    const ast = await openapiTypescript(pathToFileURL(document))
    writeFileSync(join(folder, 'openapi-typescript.ts'), astToString(ast))
  },
  async 'hey-api'() {
    const { createClient } = await import('@hey-api/openapi-ts')
    await createClient({
      input: document,
      output: join(folder, 'hey-api'),
      plugins: ['@hey-api/client-fetch', '@hey-api/typescript', '@hey-api/sdk'],
      logs: { level: 'silent' },
    })
  },
  async orval() {
    const { generate } = await import('orval')
    await generate(
      { input: { target: document }, output: { target: join(folder, 'orval.ts'), client: 'fetch', baseUrl: url } },
      folder,
    )
  },
  async 'swagger-typescript-api'() {
    const { generateApi } = await import('swagger-typescript-api')
    await generateApi({ input: document, output: folder, fileName: 'swagger-typescript-api.ts', silent: true })
  },
  async oazapfts() {
    const { generateSource } = await import('oazapfts')
    writeFileSync(join(folder, 'oazapfts.ts'), await generateSource(document, { optimistic: true }))
  },
}
for (const name of names) await GENERATORS[name]!()
