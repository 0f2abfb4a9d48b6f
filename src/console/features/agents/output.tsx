import type { Input, Output } from '../../api.ts'
import { TextArea, TextField } from '../../components/field.tsx'
import { agents as t } from '../../texts/agents.ts'

/** The form of the answers in an editor: its schema as JSON, empty for plain text, and the name of the answer. */
export type OutputDraft = { outputSchema: string; outputName: string }

export const toOutputDraft = (output: Output<'agents.get'>['agent']['output']): OutputDraft => ({
  outputSchema: output ? JSON.stringify(output.schema, null, 2) : '',
  outputName: output?.name ?? '',
})

/** Returns why the text of a schema cannot be sent, or null. The service checks the schema itself. */
export function problemOfSchema({ outputSchema }: Pick<OutputDraft, 'outputSchema'>): string | null {
  if (!outputSchema.trim()) return null
  try {
    const schema: unknown = JSON.parse(outputSchema)
    return typeof schema === 'object' && schema && !Array.isArray(schema) ? null : t.noObject
  } catch (error) {
    return t.noJson(error instanceof Error ? error.message : String(error))
  }
}

/** Converts it to a request. */
export function toOutput({ outputSchema, outputName }: OutputDraft): Input<'agents.create'>['output'] {
  if (!outputSchema.trim()) return null
  // A text with a problem is only compared, and never sent.
  const schema = problemOfSchema({ outputSchema }) ? { text: outputSchema } : JSON.parse(outputSchema)
  return { schema, ...(outputName.trim() && { name: outputName.trim() }) }
}

const SCHEMA_EXAMPLE = `{
  "type": "object",
  "properties": { "answer": { "type": "string" } },
  "required": ["answer"]
}`

type Props = { help: string; draft: OutputDraft; onChange: (changes: Partial<OutputDraft>) => void }

/** The fields of the form of the answers. */
export const OutputFields = ({ help, draft, onChange }: Props) => (
  <>
    <TextArea
      label={t.outputSchema}
      isCode
      help={help}
      error={problemOfSchema(draft)}
      placeholder={SCHEMA_EXAMPLE}
      className="min-h-40 font-mono text-xs"
      field="output.schema"
      value={draft.outputSchema}
      onChange={({ target }) => onChange({ outputSchema: target.value })}
    />
    <TextField
      label={t.outputName}
      isCode
      help={t.outputNameHelp}
      maxLength={64}
      field="output.name"
      value={draft.outputName}
      onChange={({ target }) => onChange({ outputName: target.value })}
    />
  </>
)
