import { runInNewContext } from 'node:vm'

/** Maximum duration of a check (ms), because a foreign schema may have a pathological pattern. */
const PATIENCE = 200

/**
 * Checks a value against a JSON Schema (2020-12). Returns null if it fits, otherwise a sentence that names the
 * mismatch. An unusable schema, or one that takes too long, fits nothing.
 */
export async function misfit(schema: unknown, value: unknown): Promise<string | null> {
  const { CfWorkerJsonSchemaValidator } = await import('@modelcontextprotocol/client/validators/cf-worker')
  const check = () => new CfWorkerJsonSchemaValidator().getValidator(schema as object)(value)
  try {
    // Only a script can have a time limit.
    const found = runInNewContext('check()', { check }, { timeout: PATIENCE }) as ReturnType<typeof check>
    return found.valid ? null : found.errorMessage || 'it does not fit the schema'
  } catch {
    return 'the schema of the tool cannot be checked'
  }
}
