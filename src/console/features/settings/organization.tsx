import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { useGuard } from '../../components/guard.ts'
import { Loaded, Section } from '../../components/page.tsx'
import { query, readNow, useAction } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'

const t = settings.organization

/** The name and the slug of the organization, and a button to leave it. */
export function OrganizationSettings() {
  const { organization } = useSession()
  const id = organization?.id ?? ''
  const found = useQuery(query('organizations.get', { id }))
  const [isLeaving, setIsLeaving] = useState(false)
  const leave = useAction(() => callMutation('organizations.removeMember', { id, userId: 'me' }), {
    onDone: () => location.reload(),
  })
  return (
    <>
      <Loaded query={found} lines={2}>
        {({ organization: saved }) => <Names id={id} {...toFields(saved)} />}
      </Loaded>
      <Section title={t.leave}>
        <p className="mb-3 text-soft">{t.leaveText}</p>
        <Button kind="danger" onClick={() => setIsLeaving(true)}>
          {t.leave}
        </Button>
      </Section>
      {isLeaving && (
        <Confirm
          onClose={() => setIsLeaving(false)}
          title={t.leaveTitle(organization?.name ?? '')}
          text={t.leaveText}
          action={t.leave}
          onConfirm={() => leave.mutateAsync(undefined)}
        />
      )}
    </>
  )
}

const LABELS = { name: texts.name, slug: t.slug }

type Details = Pick<Output<'organizations.get'>['organization'], 'name' | 'slug'>

const toFields = ({ name, slug }: Details) => ({ name, slug })

function Names({ id, ...saved }: Details & { id: string }) {
  const isAdmin = useIsAdmin()
  const { draft, edits, isChanged, set, check } = useEdits(saved, LABELS, async () =>
    toFields((await readNow('organizations.get', { id })).organization),
  )
  useGuard(isChanged)
  const name = draft.name.trim()
  const save = useAction(
    () =>
      check(() => callMutation('organizations.update', { id, ...edits, ...(edits.name !== undefined && { name }) })),
    { changes: ['organizations.', 'session'], done: texts.saved, quiet: true, onDone: () => set({ name }) },
  )
  return (
    <Form
      save={save}
      isReady={isChanged && name !== '' && draft.slug !== ''}
      isReadOnly={!isAdmin}
      className="mb-8 max-w-md"
    >
      <TextField
        label={texts.name}
        field="name"
        maxLength={200}
        disabled={!isAdmin}
        value={draft.name}
        onChange={({ target }) => set({ name: target.value })}
      />
      <TextField
        label={t.slug}
        isCode
        field="slug"
        help={t.slugHelp}
        maxLength={64}
        disabled={!isAdmin}
        className="font-mono"
        value={draft.slug}
        onChange={({ target }) => set({ slug: target.value.trim() })}
      />
    </Form>
  )
}
