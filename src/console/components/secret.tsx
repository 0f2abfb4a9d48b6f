import type { ReactNode } from 'react'
import { texts } from '../texts.ts'
import { Button } from './button.tsx'
import { Code } from './code.tsx'
import { Dialog } from './dialog.tsx'

type Props = { title: string; text: string; secret: string | null; onClose: () => void; children?: ReactNode }

/** Shows a secret that cannot be read again. A click beside it does not close it. */
export const Secret = ({ title, text, secret, onClose, children }: Props) => (
  <Dialog open isFirm onClose={onClose} title={title} description={text}>
    {secret && <Code text={secret} isWrapped />}
    {children}
    <div className="mt-4 flex justify-end">
      <Button kind="primary" onClick={onClose}>
        {texts.close}
      </Button>
    </div>
  </Dialog>
)
