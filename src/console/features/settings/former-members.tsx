import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Avatar } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { Loaded, Rows, RowText, Section } from '../../components/page.tsx'
import { moment } from '../../lib/format.ts'
import { query, useAction } from '../../queries.ts'
import { useSession } from '../../session.ts'
import { settings } from '../../texts/settings.ts'

const t = settings.former

type Former = Output<'organizations.listFormer'>['members'][number]

const describe = (things: Former['things']) => things.map(({ kind, count }) => `${t.kinds[kind]}: ${count}`).join(', ')

/** Former members who still own something. An owner becomes the owner of it. */
export function FormerMembers() {
  const { organization } = useSession()
  const id = organization?.id ?? ''
  const former = useQuery(query('organizations.listFormer', { id }))
  const [chosen, setChosen] = useState<Former | null>(null)
  const takeOver = useAction((userId: string) => callMutation('organizations.takeOver', { id, userId }), {
    changes: ['organizations.', 'agents.', 'chats.', 'mcps.', 'missions.', 'skills.', 'spaces.'],
    done: t.done,
  })
  if (former.data?.members.length === 0) return null
  return (
    <Section title={t.title}>
      <p className="mb-2 text-soft">{t.help}</p>
      <Loaded query={former} lines={2}>
        {({ members }) => (
          <Rows>
            {members.map((member) => (
              <li key={member.userId} className="flex flex-wrap items-center gap-x-3 gap-y-1 px-3 py-2.5 sm:px-4">
                <Avatar name={member.name} />
                <RowText name={member.name} width="basis-40">
                  {member.email}
                </RowText>
                <span className="text-soft text-xs">{describe(member.things)}</span>
                <Button small onClick={() => setChosen(member)}>
                  {t.takeOver}
                </Button>
              </li>
            ))}
          </Rows>
        )}
      </Loaded>
      {chosen !== null && (
        <Confirm
          onClose={() => setChosen(null)}
          title={t.takeOverTitle(chosen.name)}
          text={t.takeOverText}
          action={t.takeOver}
          onConfirm={() => takeOver.mutateAsync(chosen.userId)}
        >
          <Things organizationId={id} userId={chosen.userId} />
        </Confirm>
      )}
    </Section>
  )
}

function Things({ organizationId, userId }: { organizationId: string; userId: string }) {
  const things = useQuery(query('organizations.listThings', { id: organizationId, userId }))
  return (
    <div className="mb-4 max-h-72 overflow-y-auto">
      <Loaded query={things} lines={3}>
        {({ things: found }) => (
          <Rows>
            {found.map(({ kind, id, name, createdAt }) => (
              <li key={`${kind} ${id}`} className="flex items-center gap-3 px-3 py-1.5">
                <span className="w-24 shrink-0 text-soft text-xs">{t.kinds[kind]}</span>
                <bdi className="min-w-0 flex-1 truncate">{name}</bdi>
                <span className="shrink-0 text-soft text-xs">{moment(createdAt)}</span>
              </li>
            ))}
          </Rows>
        )}
      </Loaded>
    </div>
  )
}
