import './styles.css'
import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { keepFocus } from './components/focus.ts'
import { Gate } from './gate.tsx'
import { refuseStrayFiles } from './lib/stray-files.ts'
import { queryClient } from './queries.ts'
import { router } from './router.tsx'

const root = document.getElementById('root')
if (!root) throw new Error('The page has no root')
refuseStrayFiles()
keepFocus()
// The file of the page comes while the session is read.
void router.preloadRoute({ to: router.latestLocation.pathname })
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queryClient}>
      <Gate>
        <RouterProvider router={router} />
      </Gate>
    </QueryClientProvider>
  </StrictMode>,
)
