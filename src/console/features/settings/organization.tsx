import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { Loaded, Section } from '../../components/page.tsx'
import { query, useAction } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { settings } from './texts.ts'

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
        {({ organization: { name, slug } }) => <Names key={`${name} ${slug}`} id={id} name={name} slug={slug} />}
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

type Details = Pick<Output<'organizations.get'>['organization'], 'name' | 'slug'>

function Names({ id, ...before }: Details & { id: string }) {
  const isAdmin = useIsAdmin()
  const [name, setName] = useState(before.name)
  const [slug, setSlug] = useState(before.slug)
  const save = useAction(() => callMutation('organizations.update', { id, name: name.trim(), slug: slug.trim() }), {
    changes: ['organizations.', 'session'],
    done: texts.saved,
    quiet: true,
  })
  const isSame = name === before.name && slug === before.slug
  return (
    <Form
      save={save}
      isReady={!isSame && name.trim() !== '' && slug.trim() !== ''}
      isReadOnly={!isAdmin}
      className="mb-8 max-w-md"
    >
      <TextField
        label={texts.name}
        field="name"
        maxLength={200}
        disabled={!isAdmin}
        value={name}
        onChange={({ target }) => setName(target.value)}
      />
      <TextField
        label={t.slug}
        field="slug"
        help={t.slugHelp}
        maxLength={64}
        disabled={!isAdmin}
        className="font-mono"
        value={slug}
        onChange={({ target }) => setSlug(target.value)}
      />
    </Form>
  )
}
