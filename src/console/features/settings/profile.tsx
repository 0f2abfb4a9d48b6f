import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { type Output, tell } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { TextField } from '../../components/field.tsx'
import { Loaded, Problem } from '../../components/page.tsx'
import { query, useAction } from '../../queries.ts'
import { texts } from '../../texts.ts'
import { Password, Sessions } from './sessions.tsx'

const t = texts.settings.profile

/** The name and picture of the person. */
export function Profile() {
  const profile = useQuery(query('profile.get', undefined))
  return (
    <>
      <Loaded query={profile}>{(found) => <Form profile={found.profile} />}</Loaded>
      <Sessions />
      <Password />
    </>
  )
}

function Form({ profile }: { profile: Output<'profile.get'>['profile'] }) {
  const [name, setName] = useState(profile.name)
  const save = useAction(() => tell('profile.update', { name }), {
    changes: ['profile.', 'session', 'organizations.'],
    done: texts.saved,
    quiet: true,
  })
  return (
    <form
      className="mb-8 max-w-md"
      onSubmit={(event) => {
        event.preventDefault()
        save.mutate(undefined)
      }}
    >
      <TextField label={t.name} maxLength={200} value={name} onChange={({ target }) => setName(target.value)} />
      <TextField label={t.email} value={profile.email} readOnly />
      {save.error && <Problem error={save.error} />}
      <Button kind="primary" type="submit" disabled={!name.trim() || name === profile.name} busy={save.isPending}>
        {texts.save}
      </Button>
    </form>
  )
}
