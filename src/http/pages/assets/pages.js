// The scripts of the pages around signing in. All they do is in the API, too.

const { page, base, returnTo } = document.body.dataset
const find = (id) => document.getElementById(id)

/** Sends a request as a page of the service. Throws an error whose message is for the person. */
async function ask(method, path, body) {
  let response
  try {
    response = await fetch(`${base}/api/auth/${path}`, {
      method,
      headers: { 'X-Muster-Request': '1', ...(body && { 'Content-Type': 'application/json' }) },
      ...(body && { body: JSON.stringify(body) }),
    })
  } catch {
    throw new Error('The service cannot be reached. Check your connection and try again.')
  }
  const answer = await response.json().catch(() => ({}))
  if (response.ok) return answer
  const error = new Error(explain(response, answer))
  error.status = response.status
  throw error
}

function explain({ status, headers }, { message = 'Something went wrong. Try again.', detail }) {
  if (status === 429) {
    const minutes = Math.ceil(Number(headers.get('Retry-After') ?? 60) / 60)
    return `Too many failed attempts. Try again in ${minutes} ${minutes === 1 ? 'minute' : 'minutes'}.`
  }
  // A link that fails says what to do. A failed sign-in says the same for every account.
  if (status === 401 && page === 'sign-in') return `${message}.`
  const expected = /^Invalid value for field: \w+\. Expected (.*)$/.exec(message)?.[1]
  if (expected) return `This must be ${expected}.`
  const sentence = message.replace(/\.?$/, '.')
  return detail && status !== 400 ? `${sentence} ${detail}` : sentence
}

function show(id, text) {
  for (const other of ['problem', 'done']) find(other).hidden = true
  const place = find(id)
  place.textContent = text
  place.hidden = false
}

/** Runs something that the person asked for, once at a time, and shows why it failed. */
async function attempt(button, work) {
  if (button.disabled) return
  button.disabled = true
  find('problem').hidden = true
  try {
    await work()
  } catch (error) {
    show('problem', error.message)
  } finally {
    button.disabled = false
  }
}

function onSubmit(id, work) {
  const form = find(id)
  form?.addEventListener('submit', (event) => {
    event.preventDefault()
    const empty = [...form.querySelectorAll('input[required]')].find((input) => input.value.trim() === '')
    if (empty) {
      show('problem', `Fill in: ${form.querySelector(`label[for=${empty.id}]`).textContent}`)
      empty.focus()
      return
    }
    const fields = Object.fromEntries(new FormData(form))
    void attempt(form.querySelector('button[type=submit]'), () => work(fields, form))
  })
}

/** Leaves for another page. The way back skips this one, whose link or form has served its purpose. */
const leave = (to = returnTo) => location.replace(to)

/** Leaves for the console, if the browser has kept the cookie of the sign-in. */
async function enter(to) {
  const { status } = await fetch(`${base}/api/auth/session`)
  if (status === 401) {
    throw new Error(
      'The browser did not keep the sign-in. Allow cookies for this site. If its address begins with http:, try https:.',
    )
  }
  leave(to)
}

const PAGES = {
  'sign-in'() {
    onSubmit('sign-in-form', async ({ email, password }) => {
      await ask('POST', 'login', { email, password })
      await enter()
    })
  },

  link() {
    const code = location.hash.slice(1)
    if (!code) {
      find('link').hidden = true
      show('problem', 'This address is not complete: open the whole link.')
    }
    find('use-link').addEventListener('click', ({ currentTarget }) =>
      attempt(currentTarget, async () => {
        const { user } = await ask('POST', 'link', { code })
        history.replaceState(null, '', location.pathname)
        if (user.hasPassword) return leave()
        find('link').hidden = true
        find('password-form').hidden = false
        if (find('skip')) find('skip').hidden = false
        show('done', `You are signed in as ${user.email}.`)
        find('new').focus()
      }),
    )
    onSubmit('password-form', async (fields) => {
      await ask('POST', 'password', { new: fields.new })
      leave()
    })
  },

  async accept() {
    // Signing in leads back here without the code: the tab keeps it meanwhile.
    const code = location.hash.slice(1) || sessionStorage.getItem('invitation')
    if (!code) return show('problem', 'This address is not complete: open the whole link.')
    try {
      const { invitation } = await ask('POST', 'invitation', { code })
      const { organizationName, email, role, hasAccount } = invitation
      find('offer-text').textContent = `${email} is invited to join ${organizationName} as ${role}.`
      find('new-account').hidden = hasAccount
      find('name').required = !hasAccount
      find('sign-in-first').hidden = !hasAccount
      find('by-provider').hidden = hasAccount
      find('offer').hidden = false
    } catch (error) {
      find('open').hidden = false
      return show('problem', error.message)
    }
    find('sign-in-link').addEventListener('click', () => sessionStorage.setItem('invitation', code))
    onSubmit('accept-form', async ({ name, password }) => {
      await ask('POST', 'accept', { code, ...(name && { name }), ...(password && { password }) })
      sessionStorage.removeItem('invitation')
      history.replaceState(null, '', location.pathname)
      leave()
    })
  },

  forgot() {
    onSubmit('forgot-form', async ({ email }, form) => {
      const { message } = await ask('POST', 'forgot', { email })
      form.hidden = true
      show('done', message)
    })
  },

  async account() {
    await attempt(find('sign-out'), load)
    find('sign-out').addEventListener('click', ({ currentTarget }) =>
      attempt(currentTarget, async () => {
        await ask('POST', 'logout')
        leave(`${base}/app/sign-in`)
      }),
    )
    onSubmit('change-form', async ({ current, new: next }, form) => {
      const { ended } = await ask('POST', 'password', { ...(current && { current }), new: next })
      form.reset()
      await load()
      show('done', `Your password is changed.${ended ? ` Other browsers signed out: ${ended}.` : ''}`)
    })
  },
}

/** Displays the signed-in user and organization. Redirects to the sign-in page without a session. */
async function load() {
  try {
    const { user, organizations } = await ask('GET', 'session')
    const { sessions } = await ask('GET', 'sessions')
    const rows = [
      ['Name', user.name],
      ['E-mail address', user.email],
      ['Organizations', organizations.map(({ name, role }) => `${name} (${role})`).join(', ') || 'none'],
    ]
    find('user').replaceChildren(...rows.flatMap(([name, text]) => [element('dt', name), element('dd', text)]))
    find('sessions').replaceChildren(...sessions.map(sessionRow))
    find('current-field').hidden = !user.hasPassword
    find('change-form').elements.username.value = user.email
    find('account').hidden = false
  } catch (error) {
    if (error.status !== 401) throw error
    leave(`${base}/app/sign-in?returnTo=${encodeURIComponent(location.pathname)}`)
  }
}

function element(name, text) {
  const made = document.createElement(name)
  made.textContent = text
  return made
}

const METHODS = { password: 'password', link: 'link', oidc: 'identity provider' }

function sessionRow({ id, current, userAgent, address, method, lastSeenAt }) {
  const row = document.createElement('li')
  const seen = new Date(lastSeenAt).toLocaleString()
  const about = `By ${METHODS[method]}, from ${address ?? 'an unknown address'}. Last used ${seen}.`
  const name = current ? 'This browser' : browserOf(userAgent)
  const details = element('div', about)
  details.className = 'hint'
  row.append(element('div', name), details)
  if (current) return row
  const end = element('button', 'Sign out')
  end.type = 'button'
  end.className = 'plain'
  end.setAttribute('aria-label', `Sign out ${name}, last used ${seen}`)
  end.addEventListener('click', () =>
    attempt(end, async () => {
      await ask('DELETE', `sessions/${id}`)
      await load()
      show('done', 'That browser is signed out.')
    }),
  )
  row.append(end)
  return row
}

/** Names a browser by the text that it sends. */
function browserOf(userAgent) {
  const [browser] = /Edg|OPR|Firefox|Chrome|Safari/.exec(userAgent ?? '') ?? []
  const [system] = /Windows|Android|iPhone|iPad|Mac OS X|Linux/.exec(userAgent ?? '') ?? []
  const name = { Edg: 'Edge', OPR: 'Opera' }[browser] ?? browser ?? 'A browser'
  return system ? `${name} on ${system}` : name
}

// A link that is pasted into a tab with this page changes only the part behind the #.
addEventListener('hashchange', () => location.reload())
PAGES[page]?.()
