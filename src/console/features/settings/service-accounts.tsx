import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Bot, KeyRound, Pencil, Plus, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button, IconButton } from '../../components/button.tsx'
import { Confirm, Dialog } from '../../components/dialog.tsx'
import { NameField, Select } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { More } from '../../components/more.tsx'
import { Empty, ListHead, Loaded, Rows, RowText } from '../../components/page.tsx'
import { moment } from '../../lib/format.ts'
import { useOnce } from '../../once.ts'
import { pages, query, useAction, WATCHED } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'
import { type Key, KeyRows, NewKey } from './keys.tsx'

const t = settings.serviceAccounts

type Account = Output<'organizations.listServiceAccounts'>['serviceAccounts'][number]
type Role = Account['role']

/** Users that act by keys alone, such as pipelines. */
export function ServiceAccounts() {
  const { organization } = useSession()
  const isAdmin = useIsAdmin()
  const id = organization?.id ?? ''
  const [open, setOpen] = useState<{ of: Account | null; what: 'form' | 'keys' | 'delete' } | null>(null)
  const list = useQuery({ ...query('organizations.listServiceAccounts', { id }), ...WATCHED, enabled: isAdmin })
  const remove = useAction((userId: string) => callMutation('organizations.deleteServiceAccount', { id, userId }), {
    changes: ['organizations.'],
    done: texts.deleted,
  })
  if (!isAdmin) return <p className="text-soft">{settings.onlyAdmins}</p>
  const close = () => setOpen(null)
  return (
    <>
      <ListHead help={t.help} action={t.new} onAdd={() => setOpen({ of: null, what: 'form' })} />
      <Loaded query={list} lines={2}>
        {({ serviceAccounts }) =>
          serviceAccounts.length ? (
            <Rows>
              {serviceAccounts.map((account) => (
                <li key={account.id} className="flex flex-wrap items-center gap-x-2 gap-y-1 px-4 py-2.5">
                  <RowText name={account.name} width="basis-24">
                    {t.created}: {moment(account.createdAt)}
                  </RowText>
                  <Badge>{settings.members.roles[account.role]}</Badge>
                  <Button small icon={KeyRound} onClick={() => setOpen({ of: account, what: 'keys' })}>
                    {t.keys}
                  </Button>
                  <IconButton
                    label={`${texts.edit} ${account.name}`}
                    icon={Pencil}
                    onClick={() => setOpen({ of: account, what: 'form' })}
                  />
                  <IconButton
                    label={`${texts.delete} ${account.name}`}
                    icon={Trash2}
                    onClick={() => setOpen({ of: account, what: 'delete' })}
                  />
                </li>
              ))}
            </Rows>
          ) : (
            <Empty icon={Bot} title={t.emptyTitle} text={t.emptyText} />
          )
        }
      </Loaded>
      {open?.what === 'form' && <AccountForm account={open.of} onClose={close} />}
      {open?.what === 'keys' && open.of && <AccountKeys account={open.of} onClose={close} />}
      {open?.what === 'delete' && (
        <Confirm
          onClose={close}
          title={t.deleteTitle(open.of?.name ?? '')}
          text={t.deleteText}
          action={texts.delete}
          onConfirm={() => remove.mutateAsync(open.of?.id ?? '')}
        />
      )}
    </>
  )
}

function AccountForm({ account, onClose }: { account: Account | null; onClose: () => void }) {
  const { organization } = useSession()
  const id = organization?.id ?? ''
  const [name, setName] = useState(account?.name ?? '')
  const [role, setRole] = useState<Role>(account?.role ?? 'member')
  const once = useOnce()
  const save = useAction<void, unknown>(
    () =>
      account
        ? callMutation('organizations.updateServiceAccount', { id, userId: account.id, name, role })
        : once('organizations.createServiceAccount', { id, name, role }),
    { changes: ['organizations.'], done: texts.saved, quiet: true, onDone: onClose },
  )
  return (
    <Dialog open onClose={onClose} title={account ? account.name : t.new}>
      <Form save={save} isReady={name.trim() !== ''} label={account ? texts.save : texts.create} onCancel={onClose}>
        <NameField value={name} onChange={setName} />
        <Select
          label={settings.members.role}
          field="role"
          options={(['member', 'admin'] as const).map((value) => ({
            value,
            label: settings.members.roles[value],
          }))}
          value={role}
          onChange={({ target }) => setRole(target.value as Role)}
        />
      </Form>
    </Dialog>
  )
}

function AccountKeys({ account, onClose }: { account: Account; onClose: () => void }) {
  const { organization } = useSession()
  const place = { id: organization?.id ?? '', userId: account.id }
  const [isNew, setIsNew] = useState(false)
  const [doomed, setDoomed] = useState<Key | null>(null)
  const list = useInfiniteQuery(pages('organizations.listServiceKeys', place))
  const revoke = useAction((keyId: string) => callMutation('organizations.deleteServiceKey', { ...place, keyId }), {
    changes: ['organizations.listServiceKeys'],
    done: settings.keys.revoked,
  })
  if (isNew) {
    return (
      <NewKey
        changes="organizations.listServiceKeys"
        onClose={() => setIsNew(false)}
        create={(input) => callMutation('organizations.createServiceKey', { ...place, ...input })}
      />
    )
  }
  if (doomed) {
    return (
      <Confirm
        onClose={() => setDoomed(null)}
        title={settings.keys.revokeTitle(doomed.name)}
        text={settings.keys.revokeText}
        action={settings.keys.revoke}
        onConfirm={() => revoke.mutateAsync(doomed.id)}
      />
    )
  }
  return (
    <Dialog open as="wide" onClose={onClose} title={t.keysOf(account.name)} description={t.keysHelp}>
      <Loaded query={list} lines={2}>
        {({ pages: read }) => {
          const keys = read.flatMap((page) => page.keys)
          return keys.length ? <KeyRows keys={keys} onRevoke={setDoomed} /> : <p className="text-soft">{t.noKeys}</p>
        }}
      </Loaded>
      <More query={list} />
      <div className="mt-4 flex justify-end">
        <Button kind="primary" icon={Plus} onClick={() => setIsNew(true)}>
          {settings.keys.new}
        </Button>
      </div>
    </Dialog>
  )
}
