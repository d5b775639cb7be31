// cuSPARSE: sparse matrices times vectors and dense matrices, in CSR and COO form. The values are
// small whole numbers, so every order of summation gives the same bits.
#include <cusparse.h>

#include "../check.h"

#define CHECK_SPARSE(call) REQUIRE((call) == CUSPARSE_STATUS_SUCCESS)

struct Matrix {
  int rows, columns;
  std::vector<int> row_begins, row_of, column_of;
  std::vector<float> values;
};

Matrix Make(int rows, int columns) {
  check::Random random(rows * 7 + columns);
  Matrix matrix{rows, columns, {0}, {}, {}, {}};
  for (int row = 0; row < rows; ++row) {
    for (int column = row % 3; column < columns; column += 1 + random.Next32() % 16) {
      matrix.row_of.push_back(row);
      matrix.column_of.push_back(column);
      matrix.values.push_back(static_cast<float>(static_cast<int>(random.Next32() % 9) - 4));
    }
    matrix.row_begins.push_back(static_cast<int>(matrix.values.size()));
  }
  return matrix;
}

std::vector<float> Dense(int count) {
  check::Random random(count);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random.Next32() % 9) - 4);
  return values;
}

int main() {
  cusparseHandle_t handle;
  CHECK_SPARSE(cusparseCreate(&handle));
  const Matrix matrix = Make(1000, 700);
  const int count = static_cast<int>(matrix.values.size());
  int* row_begins = check::Upload(matrix.row_begins);
  int* row_of = check::Upload(matrix.row_of);
  int* column_of = check::Upload(matrix.column_of);
  float* values = check::Upload(matrix.values);
  const float alpha = 1, beta = 0;

  const std::vector<float> x = Dense(matrix.columns);
  std::vector<float> want(matrix.rows, 0.0f);
  for (int i = 0; i < count; ++i)
    want[matrix.row_of[i]] += matrix.values[i] * x[matrix.column_of[i]];
  float* device_x = check::Upload(x);
  cusparseDnVecDescr_t vector_x, vector_y;
  CHECK_SPARSE(cusparseCreateDnVec(&vector_x, matrix.columns, device_x, CUDA_R_32F));
  for (const bool csr : {true, false}) {
    float* device_y = check::Zeroed<float>(matrix.rows);
    CHECK_SPARSE(cusparseCreateDnVec(&vector_y, matrix.rows, device_y, CUDA_R_32F));
    cusparseSpMatDescr_t sparse;
    if (csr) {
      CHECK_SPARSE(cusparseCreateCsr(&sparse, matrix.rows, matrix.columns, count, row_begins,
                                     column_of, values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                     CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    } else {
      CHECK_SPARSE(cusparseCreateCoo(&sparse, matrix.rows, matrix.columns, count, row_of, column_of,
                                     values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO,
                                     CUDA_R_32F));
    }
    size_t bytes = 0;
    CHECK_SPARSE(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, sparse,
                                         vector_x, &beta, vector_y, CUDA_R_32F,
                                         CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
    char* buffer = check::Zeroed<char>(bytes + 1);
    CHECK_SPARSE(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, sparse, vector_x,
                              &beta, vector_y, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, buffer));
    CHECK(cudaDeviceSynchronize());
    check::Compare(csr ? "CSR times vector" : "COO times vector",
                   check::Download(device_y, matrix.rows), want);
    CHECK_SPARSE(cusparseDestroySpMat(sparse));
    CHECK_SPARSE(cusparseDestroyDnVec(vector_y));
    CHECK(cudaFree(buffer));
    CHECK(cudaFree(device_y));
  }

  constexpr int kRight = 24;  // columns of the dense matrix
  const std::vector<float> dense = Dense(matrix.columns * kRight);
  std::vector<float> product(matrix.rows * kRight, 0.0f);
  for (int column = 0; column < kRight; ++column) {
    for (int i = 0; i < count; ++i) {
      product[column * matrix.rows + matrix.row_of[i]] +=
          matrix.values[i] * dense[column * matrix.columns + matrix.column_of[i]];
    }
  }
  float* device_dense = check::Upload(dense);
  float* device_product = check::Zeroed<float>(matrix.rows * kRight);
  cusparseSpMatDescr_t sparse;
  CHECK_SPARSE(cusparseCreateCsr(&sparse, matrix.rows, matrix.columns, count, row_begins, column_of,
                                 values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                 CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  cusparseDnMatDescr_t right, result;
  CHECK_SPARSE(cusparseCreateDnMat(&right, matrix.columns, kRight, matrix.columns, device_dense,
                                   CUDA_R_32F, CUSPARSE_ORDER_COL));
  CHECK_SPARSE(cusparseCreateDnMat(&result, matrix.rows, kRight, matrix.rows, device_product,
                                   CUDA_R_32F, CUSPARSE_ORDER_COL));
  size_t bytes = 0;
  CHECK_SPARSE(cusparseSpMM_bufferSize(
      handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, sparse,
      right, &beta, result, CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT, &bytes));
  char* buffer = check::Zeroed<char>(bytes + 1);
  CHECK_SPARSE(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE,
                            CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, sparse, right, &beta, result,
                            CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT, buffer));
  CHECK(cudaDeviceSynchronize());
  check::Compare("CSR times matrix", check::Download(device_product, matrix.rows * kRight),
                 product);
  CHECK_SPARSE(cusparseDestroySpMat(sparse));
  CHECK_SPARSE(cusparseDestroyDnMat(right));
  CHECK_SPARSE(cusparseDestroyDnMat(result));
  CHECK_SPARSE(cusparseDestroyDnVec(vector_x));
  CHECK_SPARSE(cusparseDestroy(handle));
  for (void* memory :
       {static_cast<void*>(row_begins), static_cast<void*>(row_of), static_cast<void*>(column_of),
        static_cast<void*>(values), static_cast<void*>(device_x), static_cast<void*>(device_dense),
        static_cast<void*>(device_product), static_cast<void*>(buffer)}) {
    CHECK(cudaFree(memory));
  }
  return check::Ok();
}
