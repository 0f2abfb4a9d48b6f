import { useQuery } from '@tanstack/react-query'
import { callMutation, type Input } from '../../api.ts'
import { Select } from '../../components/field.tsx'
import { Loaded } from '../../components/page.tsx'
import { query, useAction } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { texts } from '../../texts.ts'

const t = texts.settings.policy

/** The policy for runs in the organization. */
export function Policy() {
  const { organization } = useSession()
  const isAdmin = useIsAdmin()
  const id = organization?.id ?? ''
  const policy = useQuery(query('organizations.getPolicy', { id }))
  const save = useAction(
    (changes: Omit<Input<'organizations.updatePolicy'>, 'id'>) =>
      callMutation('organizations.updatePolicy', { id, ...changes }),
    { changes: ['organizations.'], done: texts.saved, untilRead: true },
  )
  const chosen = save.isPending ? save.variables : {}
  const options = (labels: Readonly<Record<string, string>>) =>
    Object.entries(labels).map(([value, label]) => ({ value, label }))
  return (
    <div className="max-w-md">
      <p className="mb-4 text-soft">{t.help}</p>
      <Loaded query={policy} lines={2}>
        {({ policy: { foreignAgents, attachments } }) => (
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
          </>
        )}
      </Loaded>
    </div>
  )
}
