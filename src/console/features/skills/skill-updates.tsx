import { useQuery } from '@tanstack/react-query'
import { Button } from '../../components/button.tsx'
import { allPages, useAction } from '../../queries.ts'
import { skills as t } from '../../texts/skills.ts'
import { texts } from '../../texts.ts'

type Props = {
  /** The attached skills. Those of other organizations stay at their versions until a person adopts newer ones. */
  refs: readonly { skillId: string; version: number; latestVersion: number }[]
  adopt: (skillId: string) => Promise<unknown>
}

/** The attached skills that have a newer version than runs have, with buttons to adopt it. */
export function SkillUpdates({ refs, adopt }: Props) {
  const old = refs.filter(({ version, latestVersion }) => version !== latestVersion)
  const list = useQuery({ ...allPages('skills.list'), enabled: old.length > 0 })
  const all = list.data?.flatMap(({ skills }) => Object.values(skills).flat()) ?? []
  const update = useAction(adopt, { changes: ['agents.', 'spaces.'], done: texts.saved, untilRead: true })
  if (!old.length) return null
  return (
    <ul className="mb-4 space-y-1">
      {old.map(({ skillId, version, latestVersion }) => (
        <li key={skillId} className="flex flex-wrap items-center gap-2">
          <bdi className="font-medium">{all.find(({ id }) => id === skillId)?.displayName ?? t.title}</bdi>
          <span className="text-soft">{t.older(version, latestVersion)}</span>
          <Button small busy={update.isPending} onClick={() => update.mutate(skillId)}>
            {t.adopt(latestVersion)}
          </Button>
        </li>
      ))}
    </ul>
  )
}
