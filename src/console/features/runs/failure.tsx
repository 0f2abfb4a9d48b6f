import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { CircleAlert } from 'lucide-react'
import type { ReactNode } from 'react'
import { inPageWords } from '../../lib/refusals.ts'
import { query } from '../../queries.ts'
import { useIsAdmin } from '../../session.ts'
import { texts } from '../../texts.ts'

const t = texts.failures

/** The remedies that an admin finds in the settings. */
const OF_PROVIDERS: ReadonlySet<string> = new Set(['key', 'quota', 'model_not_available'])

/** The remedies by the status of a provider's answer, with which the reason of a failed run begins. */
const REMEDIES: Readonly<Record<string, keyof typeof t.remedies>> = {
  401: 'key',
  403: 'key',
  402: 'quota',
  429: 'busy',
}

/** Returns the remedy for a failed run, by its code and its reason. */
function remedyOf(code: string, reason: string): keyof typeof t.remedies | null {
  if (code === 'provider_error') return REMEDIES[/^HTTP (\d{3})/.exec(reason)?.[1] ?? ''] ?? 'provider_error'
  return Object.hasOwn(t.remedies, code) ? (code as keyof typeof t.remedies) : null
}

/** Shows the reason of a failed run, and what the person can do. `children` are the actions. */
export function Failure({ code, reason, children }: { code: string; reason: string; children?: ReactNode }) {
  const isAdmin = useIsAdmin()
  const remedy = remedyOf(code, reason)
  const isOfProvider = remedy !== null && OF_PROVIDERS.has(remedy)
  return (
    <div className="mt-2 flex items-start gap-2 rounded-lg bg-danger-tint px-3 py-2">
      <CircleAlert size={15} aria-hidden className="mt-0.5 shrink-0 text-danger" />
      <div className="min-w-0">
        <p dir="auto">
          <span className="font-medium text-danger">{t.failed}</span> {reason !== code && inPageWords(reason)}
        </p>
        {remedy && (
          <p>
            {t.remedies[remedy]} {isOfProvider && !isAdmin && t.askAdmin}
          </p>
        )}
        <p className="mt-1 flex flex-wrap items-center gap-x-4 gap-y-1">
          {children}
          {isOfProvider && isAdmin && (
            <Link
              to="/settings/$section"
              params={{ section: 'providers' }}
              className="text-accent underline underline-offset-2"
            >
              {texts.sections.providers}
            </Link>
          )}
        </p>
      </div>
    </div>
  )
}

/** Shows the failure of the last run of a task or a mission, which knows its reason. Its run has the code. */
export function LastFailure({ reason, runId }: { reason: string; runId: string | null }) {
  const run = useQuery({ ...query('executions.get', { id: runId ?? '' }), enabled: runId !== null }).data?.execution
  return (
    <div role="alert" className="mb-4">
      <Failure code={run?.errorCode ?? ''} reason={reason}>
        {run && (
          <Link to="/runs/$runId" params={{ runId: run.id }} className="text-accent underline underline-offset-2">
            {texts.chat.lookAtRun}
          </Link>
        )}
      </Failure>
    </div>
  )
}
