"""glue: sign-in by OIDC, sign-out at the provider, and the provider's back-channel logout.

State, nonce and PKCE verifier of a sign-in are in a signed cookie of ten minutes: the answer must
come back to the browser that asked, once. A browser refuses a form that redirects to another site
(form-action of the content security policy), so sign-in is a link and sign-out a page with a
redirect.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import secrets
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import structlog
from django.conf import settings
from django.contrib.auth import login, logout
from django.core import signing
from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render, resolve_url
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe
from prometheus_client import Counter

from ipuhub.models import ExternalSession
from ipuhub.oidc.accounts import (
    Roles,
    SignIn,
    end_sessions,
    find_or_make_user,
    remember_session,
)
from ipuhub.oidc.claims import claim_at, completed, groups_in, missing_claims
from ipuhub.oidc.exchange import Unreachable, one_deadline
from ipuhub.oidc.provider import Client, Provider
from ipuhub.oidc.tokens import Expected, Refused, check_id_token, check_logout_token
from ipuhub.process.metrics import Kind, Metric
from ipuhub.web.audit import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest

SIGN_INS = Metric(
    "ipuhub_external_sign_ins_total",
    Kind.COUNTER,
    "Sign-ins by OIDC or by a proxy's header, by outcome: `ok`, `unreachable`, `certificate` (the "
    "provider's cannot be verified), `untrusted` (a header from elsewhere, ignored), or why it was "
    "refused.",
    "Does sign-in by the provider work, and why not?",
    ("outcome",),
)
LOGOUTS = Metric(
    "ipuhub_external_logouts_total",
    Kind.COUNTER,
    "Back-channel logouts of the provider, by outcome.",
    "Does the provider end sessions here?",
    ("outcome",),
)
sign_ins = Counter(SIGN_INS.name, SIGN_INS.help, SIGN_INS.labels)
_logouts = Counter(LOGOUTS.name, LOGOUTS.help, LOGOUTS.labels)
_LOG = structlog.get_logger(__name__)
_COOKIE: Final = "ipuhub_oidc"
_SALT: Final = "ipuhub.oidc"
_SIGN_IN_SECONDS: Final = 600
_LONGEST_HINT: Final = 4000
_BACKEND: Final = "django.contrib.auth.backends.ModelBackend"


@lru_cache(maxsize=4)
def _provider_of(client: Client) -> Provider:
    return Provider(client)


def provider() -> Provider:
    """Return the provider of the settings."""
    return _provider_of(
        Client(
            settings.OIDC_ISSUER,
            settings.OIDC_CLIENT_ID,
            settings.OIDC_CLIENT_SECRET,
            settings.OIDC_CA_PATH,
        )
    )


def _expected() -> Expected:
    return Expected(settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID)


def _configured(view: Callable[[HttpRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """Answer 404 where no provider is configured; wait for a slow provider until one deadline."""

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        if not settings.OIDC_ISSUER:
            raise Http404
        with one_deadline():
            return view(request)

    return guarded


@_configured
@require_safe
@never_cache
def start(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider."""
    try:
        address = provider().endpoint("authorization_endpoint")
        if not address:
            raise Unreachable("the discovery document has no authorization_endpoint")
    except Unreachable as away:
        return _away(request, away)
    secret = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "verifier")}
    digest = hashlib.sha256(secret["verifier"].encode()).digest()
    query = {
        "response_type": "code",
        "client_id": settings.OIDC_CLIENT_ID,
        "redirect_uri": _callback_address(request),
        "scope": " ".join(settings.OIDC_SCOPES),
        "state": secret["state"],
        "nonce": secret["nonce"],
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    separator = "&" if "?" in address else "?"
    secret["next"] = _safe_next(request, request.GET.get("next", ""))
    answer = HttpResponseRedirect(f"{address}{separator}{urlencode(query)}")
    answer.set_cookie(
        _COOKIE,
        signing.dumps(secret, salt=_SALT),
        max_age=_SIGN_IN_SECONDS,
        path=reverse("oidc-callback"),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",  # the provider's answer comes from another site
    )
    return answer


@_configured
@require_safe
@never_cache
def callback(request: HttpRequest) -> HttpResponse:
    """Take the provider's answer and sign the user in."""
    try:
        target = _sign_in(request)
    except Refused as refused:
        answer = refuse(request, refused)
    except Unreachable as away:
        answer = _away(request, away)
    else:
        sign_ins.labels("ok").inc()
        answer = redirect(target)
    answer.delete_cookie(_COOKIE, path=reverse("oidc-callback"), samesite="Lax")
    return answer


def _sign_in(request: HttpRequest) -> str:
    secret = _kept(request)
    _check_answer(request)
    code = request.GET.get("code", "")
    if not code:
        raise Refused("code", "The provider's answer has no code. Sign in again.")
    answer = provider().exchange(code, secret["verifier"], _callback_address(request))
    token = answer.get("id_token")
    if not isinstance(token, str):
        raise Refused("token", "The provider's answer has no ID token.", "is openid a scope?")
    now = timezone.now()
    claims = check_id_token(token, provider().find_key, _expected(), secret["nonce"], now)
    claims = _with_userinfo(claims, answer.get("access_token"))
    given = SignIn(
        settings.OIDC_ISSUER,
        claims["sub"],
        claim_at(claims, settings.OIDC_USERNAME_CLAIM),
        groups_in(claims, settings.OIDC_GROUPS_CLAIM),
        address_of(request),
    )
    identity = find_or_make_user(given, roles())
    end_here(request)
    login(request, identity.user, backend=_BACKEND)
    request.session.set_expiry(settings.OIDC_SESSION_SECONDS)
    request.session.save()
    ends = now + dt.timedelta(seconds=settings.OIDC_SESSION_SECONDS)
    remember_session(identity, str(request.session.session_key), claims, token, ends)
    _LOG.info("signed in by OIDC", user=identity.user.get_username(), subject=claims["sub"][:100])
    return _safe_next(request, secret["next"]) or resolve_url(settings.LOGIN_REDIRECT_URL)


def _with_userinfo(claims: dict[str, Any], access_token: object) -> dict[str, Any]:
    """Return the claims with those that only the userinfo endpoint has, if any."""
    looked_for = [settings.OIDC_USERNAME_CLAIM]
    if any(roles()) or settings.ACCESS_GROUPS:
        looked_for.append(settings.OIDC_GROUPS_CLAIM)
    missing = missing_claims(claims, looked_for)
    if not missing or not provider().endpoint("userinfo_endpoint"):
        return claims
    return completed(claims, provider().userinfo(access_token), missing)


def roles() -> Roles:
    """Return the groups of the settings."""
    return Roles(
        settings.OIDC_REQUIRED_GROUPS,
        settings.OIDC_ADMIN_GROUPS,
        settings.OIDC_ACCOUNTANT_GROUPS,
        settings.OIDC_GROUP_ROLES,
    )


def _kept(request: HttpRequest) -> dict[str, str]:
    """Return what this browser keeps of its sign-in. Raise Refused if the answer is not to it."""
    sentence = "This sign-in does not belong to this browser, or is already over. Sign in again."
    try:
        secret: dict[str, str] = signing.loads(
            request.COOKIES.get(_COOKIE, ""), salt=_SALT, max_age=_SIGN_IN_SECONDS
        )
    except signing.SignatureExpired as error:
        late = "This sign-in took more than 10 minutes. Sign in again."
        raise Refused("late", late) from error
    except signing.BadSignature as error:
        raise Refused("state", sentence, "no cookie of a sign-in") from error
    given = request.GET.get("state", "")
    if not secrets.compare_digest(given.encode(), secret["state"].encode()):
        raise Refused("state", sentence, "state of another sign-in")
    return secret


def _check_answer(request: HttpRequest) -> None:
    issuer = request.GET.get("iss")
    if issuer is None and provider().names_itself():
        sentence = "The answer does not name its provider. Sign in again."
        raise Refused("issuer", sentence, "no iss, which the discovery document announces")
    if issuer is not None and issuer != settings.OIDC_ISSUER:
        raise Refused("issuer", "This answer is from another provider.", issuer[:200])
    error = request.GET.get("error")
    if error == "access_denied":
        raise Refused("denied", "The provider did not let you sign in to IPUHub.", error, 403)
    if error == "invalid_scope":
        sentence = (
            "The provider refuses a scope that IPUHub requests. Ask an administrator to correct "
            "IPUHUB_OIDC_SCOPES."
        )
        raise Refused("scope", sentence, f"requested: {' '.join(settings.OIDC_SCOPES)}"[:200])
    if error is not None:
        sentence = "The provider reported an error. Try again, or ask an administrator."
        raise Refused("provider", sentence, error[:100])


def end_here(request: HttpRequest) -> str:
    """End the session of this browser; return its ID token, if it began at the provider."""
    key = request.session.session_key
    began = ExternalSession.objects.filter(session_key=key).first() if key else None
    logout(request)
    if began is None:
        return ""
    began.delete()
    return began.id_token


@require_POST
@never_cache
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session here, and at the provider if it began there (RP-initiated logout)."""
    hint = end_here(request)
    if request.META.get("ipuhub.signed_in_by_header") and settings.AUTH_HEADER_SIGN_OUT:
        return _go_on(request, settings.AUTH_HEADER_SIGN_OUT)
    target = resolve_url(settings.LOGOUT_REDIRECT_URL)
    if not hint or not settings.OIDC_ISSUER:
        return redirect(target)
    try:
        address = provider().endpoint("end_session_endpoint")
    except Unreachable as away:
        _LOG.warning("signed out here only: the OIDC provider does not answer", error=str(away))
        address = ""
    if not address:
        return redirect(target)
    query = {
        "client_id": settings.OIDC_CLIENT_ID,
        "post_logout_redirect_uri": request.build_absolute_uri(target),
    }
    if len(hint) <= _LONGEST_HINT:
        query["id_token_hint"] = hint
    separator = "&" if "?" in address else "?"
    return _go_on(request, f"{address}{separator}{urlencode(query)}")


def _go_on(request: HttpRequest, address: str) -> HttpResponse:
    return render(request, "registration/signed_out.html", {"address": address})


@csrf_exempt
@_configured
@require_POST
@never_cache
def backchannel_logout(request: HttpRequest) -> HttpResponse:
    """End the sessions that the provider's logout token names."""
    try:
        claims = check_logout_token(
            request.POST.get("logout_token", ""), provider().find_key, _expected(), timezone.now()
        )
    except Refused as refused:
        _logouts.labels(refused.reason).inc()
        _LOG.warning("refused a back-channel logout", reason=refused.reason, detail=refused.detail)
        problem = {"error": "invalid_request", "error_description": refused.detail}
        return JsonResponse(problem, status=400)
    except Unreachable as away:
        _logouts.labels(away.outcome).inc()
        _LOG.warning("the OIDC provider does not answer", error=str(away))
        return JsonResponse({"error": "temporarily_unavailable"}, status=503)
    ended = end_sessions(settings.OIDC_ISSUER, claims)
    _logouts.labels("ok").inc()
    _LOG.info("the OIDC provider ended sessions", sessions=ended)
    return HttpResponse(status=200)


def refuse(request: HttpRequest, refused: Refused) -> HttpResponse:
    """Return the page of a refused sign-in; count and log it."""
    sign_ins.labels(refused.reason).inc()
    _LOG.warning("refused a sign-in", reason=refused.reason, detail=refused.detail)
    context: dict[str, Any] = {"title": "You are not signed in", "sentence": refused.sentence}
    return render(request, "registration/refused.html", context, status=refused.status)


def _away(request: HttpRequest, away: Unreachable) -> HttpResponse:
    sign_ins.labels(away.outcome).inc()
    _LOG.warning("the OIDC provider does not answer", error=str(away))
    context = {"title": "Single sign-on does not work now", "sentence": away.sentence}
    return render(request, "registration/refused.html", context, status=503)


def _callback_address(request: HttpRequest) -> str:
    return request.build_absolute_uri(reverse("oidc-callback"))


def _safe_next(request: HttpRequest, address: str) -> str:
    """Return `address` if it is a page of ours, else an empty text."""
    ours = {request.get_host()}
    fits = len(address) <= 1000 and url_has_allowed_host_and_scheme(
        address, ours, require_https=request.is_secure()
    )
    return address if fits else ""
