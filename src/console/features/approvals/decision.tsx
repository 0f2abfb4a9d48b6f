import { useRef, useState } from 'react'
import { flushSync } from 'react-dom'
import { callMutation, type Output } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { Code } from '../../components/code.tsx'
import { TextArea, TextField } from '../../components/field.tsx'
import { Fallible } from '../../components/refused.tsx'
import { isComposing } from '../../lib/composing.ts'
import { pretty } from '../../lib/format.ts'
import { useAction } from '../../queries.ts'
import { useMayChange } from '../../session.ts'
import { texts } from '../../texts.ts'
import { useUnsaved } from '../../unsaved.ts'
import { useMembers } from '../agents/names.ts'

export type Approval = Output<'approvals.list'>['approvals'][number]

const t = texts.approvals

/** A waiting call with its effect, and buttons to approve, edit or deny it for those who may. */
export function Decision({ approval }: { approval: Approval }) {
  const [mode, setMode] = useState<'look' | 'edit' | 'deny'>('look')
  const [given] = useState(() => pretty(approval.input))
  const [edited, setEdited] = useState(given)
  const [reason, setReason] = useState('')
  const [problem, setProblem] = useState<string | null>(null)
  useUnsaved((mode === 'edit' && edited !== given) || (mode === 'deny' && reason !== ''))
  const box = useRef<HTMLDivElement>(null)
  const mayDecide = useMayChange(approval.userId)
  const members = useMembers(!mayDecide)
  const isAsker = ({ userId }: { userId: string }) => userId === approval.userId
  // Its buttons stay busy until the page knows the decision.
  const options = { changes: ['approvals.', 'executions.', 'chats.messages'], untilRead: true }
  const approve = useAction(
    (input: Record<string, unknown> | undefined) =>
      callMutation('approvals.approve', { id: approval.id, ...(input && { input }) }),
    { ...options, done: t.approved, quiet: mode === 'edit' },
  )
  const deny = useAction(
    (why: string) => callMutation('approvals.deny', { id: approval.id, ...(why && { reason: why }) }),
    { ...options, done: t.denied },
  )
  const busy = approve.isPending || deny.isPending

  const switchTo = (next: typeof mode) => {
    approve.reset()
    setProblem(null)
    flushSync(() => setMode(next))
    box.current?.querySelector<HTMLElement>(next === 'look' ? '[data-actions] button' : 'textarea, input')?.focus()
  }

  const approveEdited = () => {
    try {
      const input = JSON.parse(edited)
      if (typeof input !== 'object' || input === null || Array.isArray(input)) throw new Error()
      setProblem(null)
      approve.mutate(input)
    } catch {
      setProblem(t.notJson)
    }
  }

  return (
    <div
      ref={box}
      className="my-3 rounded-xl border border-warn bg-warn-tint p-4"
      role="group"
      aria-label={t.asks(approval.tool)}
    >
      <p className="font-medium">
        {t.may} <bdi className="font-mono">{approval.tool}</bdi>
        {approval.mcpName && (
          <>
            {' '}
            {t.of} <bdi>{approval.mcpName}</bdi>
          </>
        )}
        ?
      </p>
      {approval.origin && <p className="text-soft text-xs">{t.goesTo(approval.origin)}</p>}
      {approval.description && (
        <p className="mt-1 line-clamp-3 text-soft" dir="auto">
          {approval.description}
        </p>
      )}
      <div className="mt-3">
        {mode === 'edit' ? (
          <Fallible error={approve.error}>
            <TextArea
              label={t.editInput}
              isCode
              field="input"
              error={problem}
              className="min-h-32 bg-canvas font-mono text-xs"
              dir="ltr"
              value={edited}
              onChange={({ target }) => setEdited(target.value)}
            />
          </Fallible>
        ) : (
          <Code text={pretty(approval.input)} isWrapped />
        )}
        {mode === 'deny' && (
          <TextField
            label={t.why}
            help={t.whyHelp}
            value={reason}
            wrap="mt-3"
            onChange={({ target }) => setReason(target.value)}
            onKeyDown={(event) => event.key === 'Enter' && !isComposing(event) && deny.mutate(reason)}
          />
        )}
      </div>
      {!mayDecide && (
        <p className="mt-3 text-soft">{t.waitsFor(members.data?.members.find(isAsker)?.name ?? t.anotherPerson)}</p>
      )}
      <div data-actions className="mt-3 flex flex-wrap gap-2">
        {mayDecide && mode === 'look' && (
          <>
            <Button kind="primary" busy={busy} onClick={() => approve.mutate(undefined)}>
              {t.approve}
            </Button>
            <Button disabled={busy} onClick={() => switchTo('edit')}>
              {t.edit}
            </Button>
            <Button kind="danger" disabled={busy} onClick={() => switchTo('deny')}>
              {t.deny}
            </Button>
          </>
        )}
        {mode === 'edit' && (
          <Button kind="primary" busy={busy} onClick={approveEdited}>
            {t.approveEdited}
          </Button>
        )}
        {mode === 'deny' && (
          <Button kind="danger" busy={busy} onClick={() => deny.mutate(reason)}>
            {t.deny}
          </Button>
        )}
        {mode !== 'look' && (
          <Button kind="ghost" disabled={busy} onClick={() => switchTo('look')}>
            {texts.cancel}
          </Button>
        )}
      </div>
    </div>
  )
}
