import { Link } from '@tanstack/react-router'
import { buttonClass } from '../../components/button.tsx'
import { texts } from '../../texts.ts'
import { moveToNewChat, readDraft } from './drafts.ts'
import { useOutgoing } from './outgoing.ts'

const t = texts.chat

/**
 * Hands what the person has written for a chat that takes no messages over to a new chat. `areListed`: whether the page
 * shows refused messages itself.
 */
export function Unsent({ chatId, areListed = false }: { chatId: string; areListed?: boolean }) {
  const { outgoing, drop } = useOutgoing(chatId)
  const refused = outgoing.filter(({ executionId }) => executionId === null)
  const draft = readDraft(chatId)
  const unsent = [...refused.map(({ text }) => text), draft].filter(Boolean)
  const shown = areListed ? [draft].filter(Boolean) : unsent
  const move = () => {
    moveToNewChat(chatId, unsent)
    for (const { key } of refused) drop(key)
  }
  return (
    <>
      {shown.length > 0 && (
        <>
          <p>{t.unsent}</p>
          <p dir="auto" className="wrap-anywhere max-w-xl whitespace-pre-wrap rounded-lg bg-panel px-3 py-2 text-start">
            {shown.join('\n\n')}
          </p>
        </>
      )}
      <Link to="/" className={buttonClass('primary')} onClick={move}>
        {unsent.length ? t.toNewChat : t.newChat}
      </Link>
    </>
  )
}
