import { useInfiniteQuery } from '@tanstack/react-query'
import { Plus, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button, IconButton } from '../../components/button.tsx'
import { Confirm, Dialog } from '../../components/dialog.tsx'
import { Select, TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { More } from '../../components/more.tsx'
import { Loaded, Rows, RowText, Section } from '../../components/page.tsx'
import { useShowSecret } from '../../components/secret.tsx'
import { moment } from '../../lib/format.ts'
import { pages, useAction, WATCHED } from '../../queries.ts'
import { useSession } from '../../session.ts'
import { settings } from '../../texts/settings.ts'
import { grantable, type Role } from './roles.ts'

const t = settings.invitations

type Invitation = Output<'organizations.listInvitations'>['invitations'][number]

/** The open invitations of the organization, which can be created and withdrawn here. */
export function Invitations() {
  const { organization } = useSession()
  const id = organization?.id ?? ''
  const [isNew, setIsNew] = useState(false)
  const [doomed, setDoomed] = useState<Invitation | null>(null)
  const list = useInfiniteQuery({ ...pages('organizations.listInvitations', { id }), ...WATCHED })
  const withdraw = useAction(
    (invitationId: string) => callMutation('organizations.deleteInvitation', { id, invitationId }),
    {
      changes: ['organizations.listInvitations'],
      done: t.withdrawn,
    },
  )
  return (
    <Section
      title={t.title}
      actions={
        <Button kind="primary" icon={Plus} onClick={() => setIsNew(true)}>
          {t.new}
        </Button>
      }
    >
      <Loaded query={list} lines={2}>
        {({ pages: read }) => {
          const invitations = read.flatMap((page) => page.invitations)
          if (!invitations.length) return <p className="text-soft">{t.none}</p>
          return (
            <Rows>
              {invitations.map((invitation) => (
                <li key={invitation.id} className="flex flex-wrap items-center gap-x-3 gap-y-1 px-4 py-2.5">
                  <RowText name={invitation.email} width="basis-32">
                    {t.expires}: {moment(invitation.expiresAt)}
                  </RowText>
                  <Badge>{settings.members.roles[invitation.role]}</Badge>
                  <IconButton
                    label={`${t.withdraw}: ${invitation.email}`}
                    icon={Trash2}
                    onClick={() => setDoomed(invitation)}
                  />
                </li>
              ))}
            </Rows>
          )
        }}
      </Loaded>
      <More query={list} />
      {isNew && <Invite onClose={() => setIsNew(false)} />}
      {doomed !== null && (
        <Confirm
          onClose={() => setDoomed(null)}
          title={t.withdrawTitle(doomed.email)}
          text={t.withdrawText}
          action={t.withdraw}
          onConfirm={() => withdraw.mutateAsync(doomed.id)}
        />
      )}
    </Section>
  )
}

/** Returns a link with the address of this page, if the server knows itself by no other name than localhost. */
function reachable(link: string): string {
  const url = new URL(link)
  if (url.hostname !== 'localhost') return link
  return `${location.origin}${url.pathname}${url.hash}`
}

function Invite({ onClose }: { onClose: () => void }) {
  const { organization, role: own } = useSession()
  const [email, setEmail] = useState('')
  const [role, setRole] = useState<Role>('member')
  const show = useShowSecret()
  const create = useAction(
    async () => {
      const id = organization?.id ?? ''
      const made = await callMutation('organizations.createInvitation', { id, email: email.trim(), role })
      const url = made.url && reachable(made.url)
      show({
        title: t.made,
        text: url ? t.madeText : t.mailedText,
        secret: url,
        more: url && made.mailed && <p className="mt-2 text-soft">{t.mailedText}</p>,
      })
    },
    { changes: ['organizations.listInvitations'], quiet: true, onDone: onClose },
  )
  return (
    <Dialog open onClose={onClose} title={t.new} description={t.help}>
      <Form save={create} isReady={email.trim() !== ''} label={t.invite} onCancel={onClose}>
        <TextField
          label={t.email}
          field="email"
          type="email"
          required
          maxLength={254}
          value={email}
          onChange={({ target }) => setEmail(target.value)}
        />
        <Select
          label={settings.members.role}
          field="role"
          options={grantable(own)
            .reverse()
            .map((value) => ({ value, label: settings.members.roles[value] }))}
          value={role}
          onChange={({ target }) => setRole(target.value as Role)}
        />
      </Form>
    </Dialog>
  )
}
