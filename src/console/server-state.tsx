import { useQuery } from '@tanstack/react-query'
import { CircleAlert } from 'lucide-react'
import { rest } from './api.ts'
import { everyMs } from './queries.ts'
import { texts } from './texts.ts'

type State = { status: 'ok' | 'paused'; writes?: 'disk_full' | 'read_only' }

/** Says that the server begins no runs, or saves nothing. */
export function ServerState() {
  const { data } = useQuery({
    queryKey: ['health'],
    queryFn: () => rest<State>('GET', '/api/health'),
    retry: false,
    ...everyMs(30_000),
  })
  const problem = data?.writes ?? (data?.status === 'paused' ? 'paused' : null)
  return (
    problem && (
      <p role="status" className="flex items-center justify-center gap-2 bg-warn-tint px-4 py-1.5 text-warn">
        <CircleAlert size={15} aria-hidden className="shrink-0" />
        {texts.serverStates[problem]}
      </p>
    )
  )
}
