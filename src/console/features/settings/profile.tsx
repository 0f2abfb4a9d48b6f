import { useQuery } from '@tanstack/react-query'
import { callMutation, type Output } from '../../api.ts'
import { useEdits } from '../../components/edits.ts'
import { TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { useGuard } from '../../components/guard.ts'
import { Loaded } from '../../components/page.tsx'
import { query, readNow, useAction } from '../../queries.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'
import { Password, Sessions } from './sessions.tsx'

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

function Person({ profile: { name, email } }: { profile: Output<'profile.get'>['profile'] }) {
  const { draft, edits, isChanged, set, check } = useEdits({ name }, { name: t.name }, async () => ({
    name: (await readNow('profile.get', undefined)).profile.name,
  }))
  useGuard(isChanged)
  const save = useAction(() => check(() => callMutation('profile.update', edits)), {
    changes: ['profile.', 'session', 'organizations.'],
    done: texts.saved,
    quiet: true,
  })
  return (
    <Form save={save} isReady={isChanged && draft.name.trim() !== ''} className="mb-8 max-w-md">
      <TextField
        label={t.name}
        field="name"
        maxLength={200}
        value={draft.name}
        onChange={({ target }) => set({ name: target.value })}
      />
      <TextField label={t.email} value={email} readOnly />
    </Form>
  )
}
