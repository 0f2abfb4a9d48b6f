import '../../lib/language.ts'

import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import { short, utcDay } from '../../lib/format.ts'
import { usage as t } from '../../texts/usage.ts'
import { useIsDark } from '../../theme.ts'

/** A line of a chart, with the name of its colour and a value for each period. */
export type Line = { name: string; colour: string; values: readonly number[] }

/** Distances between the lines of a chart's axis, from 1 to 5 × 10¹⁵: its values are whole numbers. */
const WHOLE_STEPS = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat()

/** Lines over time, with a dot for each period if there is space for it. */
export function Chart({ dates, lines }: { dates: readonly string[]; lines: readonly Line[] }) {
  const box = useRef<HTMLDivElement>(null)
  const isDark = useIsDark()
  // biome-ignore lint/correctness/useExhaustiveDependencies: the colours change with the theme
  useEffect(() => {
    const element = box.current
    if (!element) return
    // A canvas does not support light-dark(), but an element of that colour does.
    const probe = element.appendChild(document.createElement('span'))
    const resolve = (name: string) => {
      probe.style.color = `var(${name})`
      return getComputedStyle(probe).color
    }
    const [ink, line] = [resolve('--color-soft'), resolve('--color-line')]
    // A high-contrast theme would give all lines the colour of texts.
    probe.style.setProperty('forced-color-adjust', 'none')
    const series = lines.map(({ name, colour }) => {
      const stroke = resolve(colour)
      return {
        label: name,
        stroke,
        width: 2,
        points: { size: 6, fill: stroke, ...(dates.length === 1 && { show: true }) },
      }
    })
    probe.remove()
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false } }
    const width = () => element.clientWidth - 24
    const plot = new uPlot(
      {
        width: width(),
        height: 220,
        legend: { show: false },
        scales: {
          x: { time: true },
          y: { range: (_, __, most) => [0, Math.max(1, most) * 1.1] },
        },
        // Periods are days of UTC.
        tzDate: (at) => uPlot.tzDate(new Date(at * 1_000), 'Etc/UTC'),
        axes: [
          { ...axis, values: (_, values) => values.map((at) => utcDay(at * 1_000)) },
          { ...axis, size: 60, incrs: WHOLE_STEPS, values: (_, values) => values.map((value) => short(value)) },
        ],
        series: [{}, ...series],
      },
      [dates.map((day) => Date.parse(day) / 1_000), ...lines.map(({ values }) => [...values])],
      element,
    )
    const observer = new ResizeObserver(() => plot.setSize({ width: width(), height: 220 }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      plot.destroy()
    }
  }, [dates.join(), lines, isDark])
  return (
    <div ref={box} role="img" aria-label={t.chart} className="mb-2 overflow-hidden rounded-xl border border-line p-3" />
  )
}
