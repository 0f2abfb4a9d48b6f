import { useQuery } from '@tanstack/react-query'
import { Gauge } from 'lucide-react'
import { Empty, Loaded, Rows } from '../../components/page.tsx'
import { count, moment } from '../../lib/format.ts'
import { query } from '../../queries.ts'
import { settings } from '../../texts/settings.ts'

const t = settings.limits

/** The rate limits of the person. */
export function Limits() {
  const list = useQuery({ ...query('limits.get', undefined), refetchInterval: 15_000 })
  return (
    <>
      <p className="mb-4 text-soft">{t.help}</p>
      <Loaded query={list} lines={2}>
        {({ limits }) =>
          limits.length ? (
            <Rows>
              {limits.map(({ name, limit, window, remaining, resetsAt }) => (
                <li key={name} className="flex flex-wrap items-center gap-x-6 gap-y-1 px-4 py-3">
                  <div className="min-w-0 flex-1 basis-40">
                    <p className="font-medium">{t.names[name]}</p>
                    <p className="text-soft text-xs">{t.per(count(limit), count(window))}</p>
                  </div>
                  <meter
                    className="h-2 w-40"
                    aria-label={t.left(count(remaining))}
                    min={0}
                    max={limit}
                    low={limit / 10}
                    value={remaining}
                  />
                  <p className="w-40 text-right text-soft text-xs tabular-nums">
                    {t.left(count(remaining))}
                    <br />
                    {t.resets}: {moment(resetsAt)}
                  </p>
                </li>
              ))}
            </Rows>
          ) : (
            <Empty icon={Gauge} title={t.emptyTitle} text={t.emptyText} />
          )
        }
      </Loaded>
    </>
  )
}
