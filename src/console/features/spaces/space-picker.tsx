import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Picker, type PickerProps } from '../../components/picker.tsx'
import { useSettled } from '../../lib/settled.ts'
import { query } from '../../queries.ts'
import { texts } from '../../texts.ts'

/** Maximum number of spaces in the list of options. The server searches the rest. */
const MAX_FOUND = 50

/** A field that chooses a space. `none`: the name of no space. */
export function SpacePicker({ none, ...props }: PickerProps & { none: string }) {
  const [typed, setTyped] = useState('')
  const search = useSettled(typed)
  const found = useQuery(query('spaces.list', { ...(search && { search }), limit: MAX_FOUND }))
  const chosen = useQuery({ ...query('spaces.get', { id: props.value }), enabled: props.value !== '' })
  return (
    <Picker
      {...props}
      fixed={[{ key: '', label: none }]}
      name={chosen.data?.space.name ?? (chosen.isPending ? '…' : texts.unknownSpace)}
      groups={[
        {
          title: texts.nav.spaces,
          options: (found.data?.spaces ?? []).map(({ id, name, description }) => ({
            key: id,
            label: name,
            detail: description,
          })),
        },
      ]}
      onSearch={setTyped}
      isPending={found.isPending || search !== typed}
      hasMore={Boolean(found.data?.nextCursor)}
    />
  )
}
