import { createContext, type ReactNode, useContext, useState } from 'react'
import { texts } from '../texts.ts'
import { Button } from './button.tsx'
import { Code } from './code.tsx'
import { Dialog } from './dialog.tsx'

type Secret = { title: string; text: string; secret: string | null; more?: ReactNode }

const Shown = createContext<(secret: Secret) => void>(() => {})

/**
 * Returns a function that shows a secret that cannot be read again, wherever the person is: the form that made it may
 * be closed before its answer comes.
 */
export const useShowSecret = () => useContext(Shown)

/** The frame of the pages, with the secret above it. A click beside the secret does not close it. */
export function WithSecret({ children }: { children: ReactNode }) {
  const [shown, setShown] = useState<readonly Secret[]>([])
  const [first] = shown
  const onClose = () => setShown((all) => all.slice(1))
  return (
    <Shown value={(secret) => setShown((all) => [...all, secret])}>
      {children}
      {first && (
        <Dialog open isFirm onClose={onClose} title={first.title} description={first.text}>
          {first.secret && <Code text={first.secret} isWrapped />}
          {first.more}
          <div className="mt-4 flex justify-end">
            <Button kind="primary" onClick={onClose}>
              {texts.close}
            </Button>
          </div>
        </Dialog>
      )}
    </Shown>
  )
}
