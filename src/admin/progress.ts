import type { WriteStream } from 'node:tty'

export type Progress = { show: (done: number, total: number, what: string) => void; end: () => void }

const WIDTH = 30

/** Creates a progress line. It prints nothing without a terminal. */
export function createProgress(stream: Pick<WriteStream, 'isTTY' | 'write'>): Progress {
  if (!stream.isTTY) return { show: () => {}, end: () => {} }
  let current = ''
  const draw = (line: string) => {
    if (line === current) return
    stream.write(`\r\x1b[K${line}`)
    current = line
  }
  return {
    show(done, total, what) {
      const part = total ? done / total : 1
      const bar = '█'.repeat(Math.round(part * WIDTH)).padEnd(WIDTH, '░')
      draw(`${bar} ${Math.floor(part * 100)} %  ${what}`)
    },
    end: () => draw(''),
  }
}
