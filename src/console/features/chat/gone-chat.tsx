import { Link } from '@tanstack/react-router'
import { Bot } from 'lucide-react'
import { buttonClass } from '../../components/button.tsx'
import { Empty } from '../../components/page.tsx'
import { texts } from '../../texts.ts'
import { moveToNewChat, readDraft } from './drafts.ts'
import { useOutgoing } from './outgoing.ts'

const t = texts.chat

/** Says that a chat cannot be shown, and hands what the person has written for it over to a new chat. */
export function GoneChat({ chatId }: { chatId: string }) {
  const { outgoing, drop } = useOutgoing(chatId)
  const refused = outgoing.filter(({ executionId }) => executionId === null)
  const unsent = [...refused.map(({ text }) => text), readDraft(chatId)].filter(Boolean)
  const move = () => {
    moveToNewChat(chatId, unsent)
    for (const { key } of refused) drop(key)
  }
  return (
    <div className="min-h-0 flex-1 overflow-y-auto p-6">
      <Empty icon={Bot} title={t.goneTitle} text={t.goneText}>
        {unsent.length > 0 && (
          <>
            <p>{t.unsent}</p>
            <p
              dir="auto"
              className="wrap-anywhere max-w-xl whitespace-pre-wrap rounded-lg bg-panel px-3 py-2 text-start"
            >
              {unsent.join('\n\n')}
            </p>
          </>
        )}
        <Link to="/" className={buttonClass('primary')} onClick={move}>
          {unsent.length ? t.toNewChat : t.newChat}
        </Link>
      </Empty>
    </div>
  )
}
