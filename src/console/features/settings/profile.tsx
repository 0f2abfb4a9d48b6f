import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { Loaded } from '../../components/page.tsx'
import { query, useAction } from '../../queries.ts'
import { texts } from '../../texts.ts'
import { Password, Sessions } from './sessions.tsx'
import { settings } from './texts.ts'

const t = settings.profile

/** The name and picture of the person. */
export function Profile() {
  const profile = useQuery(query('profile.get', undefined))
  return (
    <>
      <Loaded query={profile}>{(found) => <Person profile={found.profile} />}</Loaded>
      <Sessions />
      <Password />
    </>
  )
}

function Person({ profile }: { profile: Output<'profile.get'>['profile'] }) {
  const [name, setName] = useState(profile.name)
  const save = useAction(() => callMutation('profile.update', { name }), {
    changes: ['profile.', 'session', 'organizations.'],
    done: texts.saved,
    quiet: true,
  })
  return (
    <Form save={save} isReady={name.trim() !== '' && name !== profile.name} className="mb-8 max-w-md">
      <TextField
        label={t.name}
        field="name"
        maxLength={200}
        value={name}
        onChange={({ target }) => setName(target.value)}
      />
      <TextField label={t.email} value={profile.email} readOnly />
    </Form>
  )
}
