"""JSON Web Tokens of one issuer (RFC 7519, with the precautions of RFC 8725). Needs the extra `jwt`."""

from __future__ import annotations

import jwt

from responses_gateway.server.identity.claimed import Claimed, NotIdentified, claimed
from responses_gateway.server.identity.key_set import KeySet
from responses_gateway.settings.identity import TokenIssuer

# What is signed with a shared secret, or not at all, is never accepted.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
# The types of tokens that say who somebody is (RFC 8725, 3.11; RFC 9068).
_TYPES = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})
LEEWAY = 60  # seconds by which clocks may differ
_LONGEST = 16 * 1024  # characters of a token


class Tokens:
    """Tells from tokens who somebody is."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self.keys = KeySet(issuer.issuer)
        self._issuer = issuer

    async def identify(self, token: str) -> Claimed:
        """Return whose token it is. Raise `NotIdentified`, and `KeysUnavailable` where that cannot be found out."""
        accepted = self._issuer
        if len(token) > _LONGEST:
            raise NotIdentified("it is too long")
        try:
            # The header only says which key of the issuer to take: what it says of keys elsewhere (jku, jwk, x5u) is not read.
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            key_id = header.get("kid")
            if algorithm not in ALGORITHMS:
                raise NotIdentified("its algorithm is not accepted")
            kind = header.get("typ")
            if "crit" in header or (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
                raise NotIdentified("it is of another kind")
            key = await self.keys.find(key_id, algorithm)
            if key is None:
                raise NotIdentified("its key is not one of the issuer's")
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=accepted.audience,
                issuer=accepted.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise NotIdentified("it has expired") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise NotIdentified("it is not valid") from None
        return claimed("jwt", claims.get(accepted.name_claim), claims.get(accepted.groups_claim))

    async def close(self) -> None:
        """Stop asking the issuer."""
        await self.keys.close()
