# Forecasts of the service in R, data frames in and out. Needs httr2 and jsonlite.
#   Sys.setenv(SAGA_URL = "https://saga.example.org", SAGA_KEY = "...")
#   source("examples/service.R"); saga_forecast(persons, horizons = c(1, 5, 10))
library(httr2)

saga_request <- function(path) {
  key <- Sys.getenv("SAGA_KEY")
  call <- request(Sys.getenv("SAGA_URL", "http://127.0.0.1:8000")) |>
    req_url_path_append(path) |>
    req_timeout(300) |>
    # Retry-After is followed; without it the waits double.
    req_retry(max_tries = 10, max_seconds = 120,
              is_transient = \(answer) resp_status(answer) %in% c(408, 429, 502, 503, 504)) |>
    req_error(body = saga_problem)
  if (nzchar(key)) req_headers(call, Authorization = paste("Bearer", key)) else call
}

# What is wrong, where, and how to fix it.
saga_problem <- function(answer) {
  document <- resp_body_json(answer, check_type = FALSE)
  entries <- vapply(document$problems, \(entry) {
    place <- c(person = entry$person_id, year = entry$year, column = entry$column)
    place <- if (length(place)) paste0(" (", paste(names(place), place, collapse = ", "), ")") else ""
    paste0(entry$message, place, ". ", entry$fix)
  }, "")
  c(document$title, entries)
}

# `persons` has one row a person and year: person_id, year, birth_year, earnings and any other columns of the panel.
saga_body <- function(persons, ...) {
  rows <- split(persons[setdiff(names(persons), "person_id")], persons$person_id)
  people <- lapply(names(rows), \(id) list(person_id = id, history = rows[[id]]))
  # I() keeps a vector of one element a list.
  options <- lapply(list(...), \(value) if (is.character(value) || is.logical(value)) value else I(value))
  scalars <- intersect(names(options), c("seed", "paths", "bands", "rate", "to_age", "from_age", "prices"))
  options[scalars] <- lapply(options[scalars], unclass)
  jsonlite::toJSON(c(list(persons = people), options), auto_unbox = TRUE, digits = NA, na = "null")
}

saga_post <- function(path, persons, ...) {
  saga_request(path) |>
    req_body_raw(saga_body(persons, ...), "application/json") |>
    req_perform() |>
    resp_body_json()
}

# One row a person and horizon; amounts are NA where there is no number. The attributes have provenance and warnings.
saga_forecast <- function(persons, ...) {
  answer <- saga_post("/v1/forecasts", persons, ...)
  for (person in answer$left_out) warning(person$person_id, " has no forecast: ", person$message, call. = FALSE)
  for (notice in answer$warnings) message(notice$message)
  number <- \(value) if (is.null(value)) NA_real_ else value
  rows <- lapply(answer$forecasts, \(person) lapply(person$horizons, \(horizon) {
    quantiles <- vapply(horizon$quantiles, number, 0)
    # 0.05 -> q05, as in the tables of the service.
    levels <- round(100 * as.numeric(names(horizon$quantiles)), 6)
    names(quantiles) <- paste0(ifelse(levels < 10, "q0", "q"), levels)
    limits <- unlist(lapply(horizon$intervals, \(interval) {
      zero <- if (is.null(interval$includes_zero)) NA else interval$includes_zero
      values <- list(number(interval$lower), number(interval$upper), zero, interval$guarantee)
      setNames(values, paste0(c("lower_", "upper_", "includes_zero_", "guarantee_"), 100 * interval$coverage))
    }), recursive = FALSE)
    data.frame(person_id = person$person_id, year = horizon$year, horizon = horizon$h,
               mean = number(horizon$mean), p_zero = number(horizon$p_zero), as.list(quantiles), limits)
  }))
  table <- do.call(rbind, unlist(rows, recursive = FALSE))
  structure(table, provenance = answer$provenance, warnings = answer$warnings)
}

# Persons of any number: a CSV file goes as a job, and the result comes as a Parquet file (read it with
# nanoparquet::read_parquet or arrow::read_parquet).
saga_job <- function(csv_file, parquet_file, key = format(Sys.time(), "%Y%m%dT%H%M%OS6"), ...) {
  # A query has lists with commas, and true and false in small letters.
  query <- lapply(list(...), \(value) paste(if (is.logical(value)) tolower(value) else value, collapse = ","))
  job <- do.call(req_url_query, c(list(saga_request("/v1/jobs")), query)) |>
    req_headers("Idempotency-Key" = key) |>
    req_body_file(csv_file, "text/csv") |>
    req_perform() |>
    resp_body_json()
  while (job$state %in% c("queued", "running")) {
    Sys.sleep(2)
    job <- saga_request(job$links$self) |> req_perform() |> resp_body_json()
    message(job$state, " ", job$persons_done, " of ", if (is.null(job$persons)) "?" else job$persons)
  }
  if (job$state != "succeeded") stop(job$problem$title, ": ", job$problem$detail)
  saga_request(job$links$result) |> req_perform(path = parquet_file)
  job$totals
}
