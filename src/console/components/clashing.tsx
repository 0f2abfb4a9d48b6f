import { useEffect, useRef } from 'react'
import { texts } from '../texts.ts'
import { Button } from './button.tsx'
import { Differences } from './differences.tsx'
import type { Clash } from './edits.ts'

/** Shows what others have saved meanwhile beside what the person wants to save. */
export function Clashing({ clash, giveUp }: { clash: Clash; giveUp: () => void }) {
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    box.current?.scrollIntoView({ block: 'nearest' })
  }, [])
  return (
    <div ref={box} className="my-3 rounded-xl bg-warn-tint px-4 py-3">
      <p role="alert" className="mb-3">
        {clash.message} {texts.clash.how}
      </p>
      <div tabIndex={0} role="group" aria-label={texts.clash.versions} className="max-h-[50vh] overflow-y-auto">
        {clash.fields.map(({ label, theirs, mine }) => (
          <Differences key={label} name={label} before={theirs} after={mine} />
        ))}
      </div>
      <Button onClick={giveUp}>{texts.clash.giveUp}</Button>
    </div>
  )
}
