import { Trash2, Users } from 'lucide-react'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Avatar, Badge } from '../../components/badge.tsx'
import { IconButton } from '../../components/button.tsx'
import { fits } from '../../components/combobox.ts'
import { Confirm } from '../../components/dialog.tsx'
import { useParts } from '../../components/more.tsx'
import { Loaded, Rows, RowText } from '../../components/page.tsx'
import { NoMatch, SearchField, useSearching } from '../../components/search.tsx'
import { moment } from '../../lib/format.ts'
import { useAction } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'
import { useMembers } from '../agents/names.ts'
import { FormerMembers } from './former-members.tsx'
import { Invitations } from './invitations.tsx'
import { grantable, type Role } from './roles.ts'

const t = settings.members

/** Number of members from which on the list has a search. */
const MANY = 20

type Member = Output<'organizations.members'>['members'][number]

/** The members of the organization. Admins change roles and remove people; only owners make owners. */
export function Members() {
  const { organization, role: own } = useSession()
  const id = organization?.id ?? ''
  const isAdmin = useIsAdmin()
  const members = useMembers()
  const { filter, field } = useSearching()
  const all = members.data?.members ?? []
  const found = all.filter(({ name, email }) => fits(`${name} ${email}`, filter.search ?? ''))
  const [shown, more] = useParts(found)
  const [doomed, setDoomed] = useState<Member | null>(null)
  // In some browsers each arrow key on a list chooses, so a choice alone grants nothing.
  const [asked, setAsked] = useState<{ member: Member; role: Role } | null>(null)
  const update = useAction(
    ({ userId, role }: { userId: string; role: Role }) =>
      callMutation('organizations.updateMember', { id, userId, role }),
    { changes: ['organizations.'], done: texts.saved, untilRead: true },
  )
  const remove = useAction((userId: string) => callMutation('organizations.removeMember', { id, userId }), {
    changes: ['organizations.'],
    done: t.removed,
  })
  const mayChange = (role: Role) => own === 'owner' || (own === 'admin' && role !== 'owner')
  const roleOf = ({ userId, role }: Member) => (asked?.member.userId === userId ? asked.role : role)
  const roles = grantable(own)
  return (
    <>
      <p className="mb-4 text-soft">{t.help}</p>
      <Loaded query={members}>
        {() => (
          <>
            {(all.length >= MANY || field.value) && (
              <SearchField list={texts.sections.members} className="mb-3 max-w-72" {...field} />
            )}
            {found.length === 0 && <NoMatch icon={Users} />}
            <Rows>
              {shown.map((member) => (
                <li key={member.userId} className="flex flex-wrap items-center gap-x-2 gap-y-1 px-3 py-2.5 sm:px-4">
                  <Avatar name={member.name} />
                  <RowText name={member.name} width="basis-24">
                    {member.kind === 'user' && member.email}
                  </RowText>
                  <span className="hidden text-soft text-xs lg:inline">
                    {t.joined}: {moment(member.joinedAt)}
                  </span>
                  {member.kind === 'service' && <Badge>{t.service}</Badge>}
                  {mayChange(member.role) ? (
                    <>
                      <select
                        aria-label={`${t.role}: ${member.name}`}
                        className="field w-auto py-1"
                        value={roleOf(member)}
                        onChange={({ target }) => setAsked({ member, role: target.value as Role })}
                      >
                        {roles.map((role) => (
                          <option key={role} value={role}>
                            {t.roles[role]}
                          </option>
                        ))}
                      </select>
                      <IconButton
                        label={`${t.remove} ${member.name}`}
                        icon={Trash2}
                        onClick={() => setDoomed(member)}
                      />
                    </>
                  ) : (
                    <Badge>{t.roles[member.role]}</Badge>
                  )}
                </li>
              ))}
            </Rows>
            {more}
          </>
        )}
      </Loaded>
      {isAdmin && (
        <div className="mt-8">
          <Invitations />
        </div>
      )}
      {own === 'owner' && (
        <div className="mt-8">
          <FormerMembers />
        </div>
      )}
      {asked !== null && (
        <Confirm
          onClose={() => setAsked(null)}
          title={t.roleTitle(asked.member.name, t.roles[asked.role])}
          text={t.roleTexts[asked.role]}
          action={t.changeRole}
          onConfirm={() => update.mutateAsync({ userId: asked.member.userId, role: asked.role })}
        />
      )}
      {doomed !== null && (
        <Confirm
          onClose={() => setDoomed(null)}
          title={t.removeTitle(doomed.name)}
          text={t.removeText}
          action={t.remove}
          onConfirm={() => remove.mutateAsync(doomed.userId)}
        />
      )}
    </>
  )
}
