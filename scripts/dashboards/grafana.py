"""Render dashboards as the JSON that Grafana imports."""

from __future__ import annotations

import json
from typing import Any

from dashboards.panels import SHARE, Dashboard, Panel
from dashboards.queries import GATEWAYS, PREFIX

Object = dict[str, Any]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA = 39  # for Grafana 10 to 12
COLOURS = {
    "completed": "green", "incomplete": "yellow", "rejected": "orange", "failed": "red", "client_disconnected": "purple",
    "cancelled": "dark-purple", "handed_over": "blue", "p50": "green", "p95": "orange", "p99": "red",
}  # fmt: skip


def page(dashboard: Dashboard) -> Object:
    """Return a dashboard in Grafana's format."""
    panels: list[Object] = []
    top = 0
    for row in dashboard.rows:
        panels.append(_heading(row.title, top, len(panels) + 1))
        top += 1
        left = 0
        height = 0
        for panel in row.panels:
            if left + panel.width > 24:
                left = 0
                top += height
            panels.append(_panel(panel, {"x": left, "y": top, "w": panel.width, "h": panel.height}, len(panels) + 1))
            left += panel.width
            height = panel.height
        top += height
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["responses-gateway"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [_links()],
        "annotations": {"list": [_restarts()]},
        "templating": {"list": _variables(dashboard.models)},
        "panels": panels,
    }


def _heading(title: str, top: int, number: int) -> Object:
    place = {"x": 0, "y": top, "w": 24, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel, place: Object, number: int) -> Object:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [_target(panel, *query, chr(ord("A") + index)) for index, query in enumerate(panel.queries.items())],
        "fieldConfig": {"defaults": _field(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
    }


def _target(panel: Panel, expression: str, legend: str, reference: str) -> Object:
    target: Object = {"refId": reference, "datasource": SOURCE, "expr": expression, "legendFormat": legend}
    if panel.kind == "heatmap":
        target["format"] = "heatmap"
    return target


def _field(panel: Panel) -> Object:
    field_: Object = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": _steps(panel)}}
    if panel.unit == SHARE and (panel.low_is_bad or panel.stacked):
        field_["max"] = 1
    if panel.decimals is not None:
        field_["decimals"] = panel.decimals
    if panel.kind == "stat":
        field_["color"] = {"mode": "thresholds"}
    elif panel.kind == "timeseries":
        field_["color"] = {"mode": "palette-classic"}
        field_["custom"] = {
            "lineWidth": 2,
            "fillOpacity": 40 if panel.stacked else 8,
            "gradientMode": "opacity",
            "showPoints": "never",
            "lineInterpolation": "smooth" if not panel.stacked else "linear",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "off" if panel.warn is None else "dashed"},
        }
    return field_


def _steps(panel: Panel) -> list[Object]:
    thresholds = [(value, colour) for value, colour in ((panel.warn, "orange"), (panel.bad, "red")) if value is not None]
    if not panel.low_is_bad:
        return [{"color": "green", "value": None}, *({"color": colour, "value": value} for value, colour in thresholds)]
    # In ascending order: values below `bad` are red, and the next better colour begins at each threshold.
    colours = [colour for _, colour in reversed(thresholds)] + ["green"]
    values = [None, *(value for value, _ in reversed(thresholds))]
    return [{"color": colour, "value": value} for colour, value in zip(colours, values, strict=True)]


def _overrides(panel: Panel) -> list[Object]:
    """Return overrides that give each outcome and percentile the same colour in all panels."""
    fixed = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in COLOURS.items()
    ]
    return fixed if panel.kind == "timeseries" and {"{{outcome}}", "p95"} & set(panel.queries.values()) else []


def _options(panel: Panel) -> Object:
    if panel.kind == "stat":
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"colorMode": "value", "graphMode": "area", "reduceOptions": reduce, "textMode": "value"}
    if panel.kind == "heatmap":
        return {
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Turbo", "steps": 64, "exponent": 0.5},
            "yAxis": {"unit": panel.unit},
            "legend": {"show": True},
            "tooltip": {"mode": "single", "yHistogram": True},
            "filterValues": {"le": 1e-9},
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _variables(models: bool) -> list[Object]:
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }
    chosen = [
        _choice("job", "Job", f"label_values({PREFIX}requests_in_flight, job)"),
        _choice("instance", "Gateway", f'label_values({PREFIX}requests_in_flight{{job=~"$job"}}, instance)'),
    ]
    if models:
        chosen.append(_choice("model", "Model", f"label_values({PREFIX}requests_total{{{GATEWAYS}}}, model)"))
    return [source, *chosen]


def _choice(name: str, label: str, query: str) -> Object:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # with the time range
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
    }


def _links() -> Object:
    return {
        "title": "responses-gateway",
        "type": "dashboards",
        "tags": ["responses-gateway"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
    }


def _restarts() -> Object:
    return {
        "name": "Starts",
        "enable": True,
        "datasource": SOURCE,
        "expr": f"changes(process_start_time_seconds{{{GATEWAYS}}}[1m]) > 0",
        "titleFormat": "{{instance}} started",
        "iconColor": "blue",
    }


def render(dashboard: Dashboard) -> str:
    """Return a dashboard as the text of a JSON file."""
    return json.dumps(page(dashboard), indent=1, ensure_ascii=False) + "\n"
