import { runInTime } from '../lib/run-in-time.ts'

/** Maximum duration of a check (ms), because a foreign schema may have a pathological pattern. */
const PATIENCE = 200

/**
 * Checks a value against a JSON Schema (2020-12). Returns null if it fits, otherwise a sentence that names the
 * mismatch. An unusable schema, or one that takes too long, fits nothing.
 */
export async function misfit(schema: unknown, value: unknown): Promise<string | null> {
  const { CfWorkerJsonSchemaValidator } = await import('@modelcontextprotocol/client/validators/cf-worker')
  try {
    const found = runInTime(PATIENCE, () => new CfWorkerJsonSchemaValidator().getValidator(schema as object)(value))
    return found.valid ? null : sentenceOf(found.errorMessage)
  } catch {
    return 'The schema cannot be checked.'
  }
}

/**
 * Returns the first error of the innermost value in a message of the validator, which is a list such as
 * `#: Property "to" does not match schema.; #/to: Instance type "number" is invalid. Expected "string".`
 */
function sentenceOf(message: string): string {
  const errors = message.split(/; (?=#)/).map((error) => /^#\/?(\S*): (.*)$/s.exec(error)?.slice(1) ?? ['', error])
  const innermost = errors.at(-1)?.[0]
  const [path, reason = ''] = errors.find(([place]) => place === innermost) ?? []
  const plain = reason
    .replace(/^Instance type/, 'The type')
    .replace(/^Instance/, 'The value')
    .replace(/^False boolean schema/, 'The schema does not allow it')
  return path ? `Field "${path}": ${plain}` : plain
}
