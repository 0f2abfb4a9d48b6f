import { useQuery } from '@tanstack/react-query'
import { callMutation, type Input, type Output } from '../../api.ts'
import { useEdits } from '../../components/edits.ts'
import { Select } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { useGuard } from '../../components/guard.ts'
import { Loaded } from '../../components/page.tsx'
import { ToolModes } from '../../components/tool-modes.tsx'
import { query, readNow, useAction } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'

const t = settings.policy

/** The policy for runs in the organization. */
export function Policy() {
  const { organization } = useSession()
  const isAdmin = useIsAdmin()
  const id = organization?.id ?? ''
  const policy = useQuery(query('organizations.getPolicy', { id }))
  const save = useAction(
    (changes: Omit<Input<'organizations.updatePolicy'>, 'id'>) =>
      callMutation('organizations.updatePolicy', { id, ...changes }),
    { changes: ['organizations.'], done: texts.saved, untilRead: true, inTurn: true },
  )
  const chosen = Object.assign({}, ...save.pending) as Partial<(typeof save.pending)[number]>
  const options = (labels: Readonly<Record<string, string>>) =>
    Object.entries(labels).map(([value, label]) => ({ value, label }))
  return (
    <div className="max-w-md">
      <p className="mb-4 text-soft">{t.help}</p>
      <Loaded query={policy} lines={2}>
        {({ policy: { foreignAgents, attachments, builtInTools } }) => (
          <>
            <Select
              label={t.foreignAgents}
              options={options(t.foreign)}
              value={chosen.foreignAgents ?? foreignAgents}
              disabled={!isAdmin}
              onChange={({ target }) => save.mutate({ foreignAgents: target.value as typeof foreignAgents })}
            />
            <Select
              label={t.attachments}
              options={options(t.attached)}
              value={chosen.attachments ?? attachments}
              disabled={!isAdmin}
              onChange={({ target }) => save.mutate({ attachments: target.value as typeof attachments })}
            />
            <BuiltInTools id={id} saved={builtInTools} isReadOnly={!isAdmin} />
          </>
        )}
      </Loaded>
    </div>
  )
}

const LABELS = { builtInTools: texts.toolModes.title }

type ToolsProps = {
  id: string
  saved: Output<'organizations.getPolicy'>['policy']['builtInTools']
  isReadOnly: boolean
}

/** The approval modes of the built-in tools in all runs. */
function BuiltInTools({ id, saved, isReadOnly }: ToolsProps) {
  const { draft, edits, isChanged, set, check } = useEdits({ builtInTools: saved }, LABELS, async () => {
    const { policy } = await readNow('organizations.getPolicy', { id })
    return { builtInTools: policy.builtInTools }
  })
  useGuard(isChanged)
  const save = useAction(() => check(() => callMutation('organizations.updatePolicy', { id, ...edits })), {
    changes: ['organizations.'],
    done: texts.saved,
    quiet: true,
  })
  return (
    <Form save={save} isReady={isChanged} isReadOnly={isReadOnly} className="mt-6">
      <ToolModes help={t.toolsHelp} value={draft.builtInTools} onChange={(builtInTools) => set({ builtInTools })} />
    </Form>
  )
}
