import { useInfiniteQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Button } from '../../components/button.tsx'
import { Differences } from '../../components/differences.tsx'
import { More } from '../../components/more.tsx'
import { Loaded } from '../../components/page.tsx'
import { changedFields } from '../../lib/changes.ts'
import { moment } from '../../lib/format.ts'
import { pages } from '../../queries.ts'
import { agents as t } from '../../texts/agents.ts'
import { type Agent, type Draft, LABELS, toDraft, UNEDITED_LABELS, uneditedOf } from './form.ts'

/** The versions of an agent, two of them side by side. */
export function Versions({ agent, onRestore }: { agent: Agent; onRestore: ((old: Agent) => void) | null }) {
  const list = useInfiniteQuery(pages('agents.versions', { id: agent.id }))
  const [older, setOlder] = useState<number | null>(null)
  const [newer, setNewer] = useState<number | null>(null)
  return (
    <Loaded query={list}>
      {({ pages: read }) => {
        const versions = read.flatMap((page) => page.versions)
        if (versions.length < 2) return <p className="text-soft">{t.onlyVersion}</p>
        const right = versions.find(({ version }) => version === newer) ?? versions[0]
        const left = versions.find(({ version }) => version === older) ?? versions[1]
        if (!left || !right) return null
        const pick = (label: string, value: number, onChange: (version: number) => void) => (
          <select
            aria-label={label}
            className="field w-auto"
            value={value}
            onChange={({ target }) => onChange(Number(target.value))}
          >
            {versions.map(({ version, createdAt }) => (
              <option key={version} value={version}>
                {t.version(version)} · {moment(createdAt)}
              </option>
            ))}
          </select>
        )
        return (
          <>
            <h2 className="sr-only">{t.tabs.versions}</h2>
            <div className="mb-3 flex flex-wrap items-center gap-2">
              {pick(t.compare, left.version, setOlder)}
              <span className="text-soft">{t.with}</span>
              {pick(t.with, right.version, setNewer)}
              {onRestore && left.version !== agent.version && (
                <Button small onClick={() => onRestore(left.agent)}>
                  {t.restore}
                </Button>
              )}
            </div>
            <Diff before={left.agent} after={right.agent} />
            <More query={list} />
          </>
        )
      }}
    </Loaded>
  )
}

type Fields = Draft & ReturnType<typeof uneditedOf>

const ALL_LABELS = { ...LABELS, ...UNEDITED_LABELS }

function Diff({ before, after }: { before: Agent; after: Agent }) {
  const [a, b] = [before, after].map((agent) => ({ ...toDraft(agent), ...uneditedOf(agent) })) as [Fields, Fields]
  const changed = Object.keys(changedFields(a, b)) as (keyof Fields)[]
  if (!changed.length) return <p className="text-soft">{t.noDifference}</p>
  return changed.map((name) => <Differences key={name} name={ALL_LABELS[name]} before={a[name]} after={b[name]} />)
}
